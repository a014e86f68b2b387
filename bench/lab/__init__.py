"""The benchmark lab: which programs are run under which allocators, how they are measured, judged and shown.

    row, rows/   what a row is; the rows and the targets of each: data, no code
    allocators   finds the libraries, cleans the environment, proves which malloc a program got
    build        builds the programs, and another revision of hakmem
    process      starts one program, ends it if it hangs
    measure      runs a row in interleaved rounds; counts has what is counted once: system calls, instructions
    judge        ratios per round, their confidence intervals, verdicts
    machine      the machine's description
    results      result files: JSON, CSV
    tables, progress
                 what is printed
    session      a benchmark from its first row to its last
    page/        the report: one HTML page from result files
"""
