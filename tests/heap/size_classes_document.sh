#!/bin/bash
# docs/size-classes.md is what tools/size-classes prints.
set -euo pipefail
if ! diff -u "$HAKMEM_SOURCE_DIR/docs/size-classes.md" <("$HAKMEM_SOURCE_DIR/tools/size-classes"); then
    echo "run: tools/size-classes >docs/size-classes.md"
    exit 1
fi
