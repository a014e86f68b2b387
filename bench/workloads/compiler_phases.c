/*
 * A compiler that takes each of its structures from malloc.
 *
 * Stands for compilers, interpreters, query planners and linters without arenas: function after function goes through
 * phases, each of which builds many small nodes of its own kinds and growing vectors, and drops those of the phase
 * before; names are kept to the end, and the code until the unit is done.
 *
 * A function is an expression in postfix, of up to TOKENS: tokens in a vector, parsed into a tree, lowered into a list
 * of instructions, of which those with constant operands are folded away, and emitted into a buffer that grows.
 *
 * Figure: microseconds per function. Check: running the code gives what the tokens give.
 *
 *     compiler_phases TOKENS FUNCTIONS
 */
#include "arguments.h"
#include "sizes.h"

#include <stdbool.h>

enum { NAMES = 512, MOST_ARGUMENTS = 5, FUNCTIONS_IN_UNIT = 64, FIRST_ROOM = 8 };

enum kind { NUMBER, NAME, SUM, PRODUCT, CALL };

static void *allocate(size_t size)
{
    void *block = malloc(size);
    if (!block)
        fail("malloc(%zu) returned NULL", size);
    return block;
}

/* A vector that doubles, as any phase needs one. */
struct vector {
    char *element;
    size_t length;
    size_t room;
};

static void *vector_add(struct vector *vector, size_t size)
{
    if (vector->length == vector->room) {
        vector->room = vector->room ? 2 * vector->room : FIRST_ROOM;
        vector->element = realloc(vector->element, vector->room * size);
        if (!vector->element)
            fail("realloc to %zu elements returned NULL", vector->room);
    }
    return vector->element + vector->length++ * size;
}

static void vector_drop(struct vector *vector)
{
    free(vector->element);
    *vector = (struct vector){0};
}

/* Names, interned: a node of a hash table and the text, for as long as the compiler runs. */
struct symbol {
    struct symbol *next;
    char *text;
    uint64_t value;
};

static struct symbol *symbols[NAMES]; /* by hash, which here is the name's number */

static struct symbol *intern(size_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%s_%zu", number % 3 ? "local" : "global_variable", number);
    struct symbol **place = &symbols[number % NAMES];
    for (; *place; place = &(*place)->next)
        if (strcmp((*place)->text, text) == 0)
            return *place;
    *place = allocate(sizeof **place);
    **place = (struct symbol){.text = strdup(text), .value = number * 7 + 1};
    return *place;
}

struct token {
    enum kind kind;
    uint32_t arguments;
    uint64_t value; /* of a number; which of the names */
};

static void scan(struct vector *tokens, size_t wanted, uint64_t *state)
{
    for (size_t depth = 0; tokens->length < wanted || depth > 1;) {
        struct token token = {.kind = NUMBER, .value = random_next(state) % 1000};
        size_t draw = size_between(state, 0, 9);
        if (depth > 1 && (draw < 5 || tokens->length >= wanted)) {
            token.kind = draw < 2 ? SUM : draw < 4 ? PRODUCT : CALL;
            token.arguments = 2;
            if (token.kind == CALL)
                token.arguments = (uint32_t)size_between(state, 1, depth < MOST_ARGUMENTS ? depth : MOST_ARGUMENTS);
            depth -= token.arguments;
        } else if (draw >= 7) {
            token = (struct token){.kind = NAME, .value = random_next(state) % NAMES};
        }
        depth++;
        *(struct token *)vector_add(tokens, sizeof token) = token;
    }
}

/* What an operation makes of the values that it takes. */
static uint64_t apply(enum kind kind, const uint64_t *value, size_t count)
{
    uint64_t result = kind == PRODUCT ? 1 : kind == CALL ? 17 : 0;
    for (size_t i = 0; i < count; i++)
        result = kind == PRODUCT ? result * value[i] : kind == CALL ? result * 31 + value[i] : result + value[i];
    return result;
}

static uint64_t value_of_tokens(const struct vector *tokens)
{
    struct vector stack = {0};
    for (size_t i = 0; i < tokens->length; i++) {
        struct token token = ((struct token *)(void *)tokens->element)[i];
        uint64_t value = token.kind == NAME ? token.value * 7 + 1 : token.value;
        if (token.arguments) {
            stack.length -= token.arguments;
            value = apply(token.kind, (uint64_t *)(void *)stack.element + stack.length, token.arguments);
        }
        *(uint64_t *)vector_add(&stack, sizeof value) = value;
    }
    uint64_t value = *(uint64_t *)(void *)stack.element;
    vector_drop(&stack);
    return value;
}

/* The tree. Leaves have no operands, and a name's leaf is longer: nodes are of several sizes. */
struct node {
    enum kind kind;
    uint32_t operands;
    union {
        uint64_t number;
        struct symbol *symbol;
        struct node **operand;
    } as;
};

struct name_node {
    struct node node;
    size_t line, column; /* for messages */
};

static struct node *node_new(struct token token, struct node **operand)
{
    if (token.kind == NAME) {
        struct name_node *name = allocate(sizeof *name);
        *name = (struct name_node){.node = {.kind = NAME, .as.symbol = intern(token.value)}};
        return &name->node;
    }
    struct node *node = allocate(sizeof *node);
    *node = (struct node){.kind = token.kind, .operands = token.arguments};
    if (token.arguments) {
        node->as.operand = allocate(token.arguments * sizeof *node->as.operand);
        memcpy(node->as.operand, operand, token.arguments * sizeof *operand);
    } else {
        node->as.number = token.value;
    }
    return node;
}

static struct node *parse(const struct vector *tokens)
{
    struct vector stack = {0};
    for (size_t i = 0; i < tokens->length; i++) {
        struct token token = ((struct token *)(void *)tokens->element)[i];
        stack.length -= token.arguments;
        struct node *node = node_new(token, (struct node **)(void *)stack.element + stack.length);
        *(struct node **)vector_add(&stack, sizeof node) = node;
    }
    struct node *root = *(struct node **)(void *)stack.element;
    vector_drop(&stack);
    return root;
}

static void tree_drop(struct node *node)
{
    for (size_t i = 0; i < node->operands; i++)
        tree_drop(node->as.operand[i]);
    if (node->operands)
        free(node->as.operand);
    free(node);
}

/* The instructions of a function, in the order they run in. Each names those whose results it takes. */
struct instruction {
    struct instruction *previous, *next;
    enum kind kind;
    uint32_t operands;
    uint64_t value; /* of a constant; then the result, when it has run */
    struct instruction *operand[];
};

struct code {
    struct instruction *first, *last;
};

static struct instruction *lower(struct code *code, const struct node *node)
{
    struct instruction *made = allocate(sizeof *made + node->operands * sizeof *made->operand);
    *made = (struct instruction){.kind = node->kind, .operands = node->operands};
    if (node->kind == NAME)
        made->value = node->as.symbol->value;
    else if (node->kind == NUMBER)
        made->value = node->as.number;
    for (size_t i = 0; i < node->operands; i++)
        made->operand[i] = lower(code, node->as.operand[i]);
    made->previous = code->last;
    *(code->last ? &code->last->next : &code->first) = made;
    code->last = made;
    return made;
}

static void remove_instruction(struct code *code, struct instruction *gone)
{
    *(gone->previous ? &gone->previous->next : &code->first) = gone->next;
    *(gone->next ? &gone->next->previous : &code->last) = gone->previous;
    free(gone);
}

static uint64_t run_instruction(const struct instruction *instruction)
{
    uint64_t value[MOST_ARGUMENTS];
    for (size_t i = 0; i < instruction->operands; i++)
        value[i] = instruction->operand[i]->value;
    return apply(instruction->kind, value, instruction->operands);
}

/* Operations on constants become constants; their operands, which nobody else takes, go. */
static void fold(struct code *code)
{
    for (struct instruction *at = code->first; at; at = at->next) {
        bool constant = at->operands > 0;
        for (size_t i = 0; i < at->operands; i++)
            constant = constant && at->operand[i]->kind == NUMBER;
        if (!constant)
            continue;
        at->value = run_instruction(at);
        for (size_t i = 0; i < at->operands; i++)
            remove_instruction(code, at->operand[i]);
        at->kind = NUMBER;
        at->operands = 0;
    }
}

/* Runs the instructions, writes their results to the buffer and drops them; the last result is the function's. */
static uint64_t emit(struct code *code, struct vector *buffer)
{
    uint64_t result = 0;
    for (struct instruction *at = code->first; at; at = at->next) {
        if (at->operands)
            at->value = run_instruction(at);
        result = *(uint64_t *)vector_add(buffer, sizeof result) = at->value;
    }
    while (code->first)
        remove_instruction(code, code->first);
    return result;
}

static void compile(size_t tokens_wanted, struct vector *buffer, uint64_t *state)
{
    struct vector tokens = {0};
    struct code code = {0};
    scan(&tokens, tokens_wanted, state);
    uint64_t expected = value_of_tokens(&tokens);
    struct node *root = parse(&tokens);
    vector_drop(&tokens);
    lower(&code, root);
    tree_drop(root);
    fold(&code);
    if (emit(&code, buffer) != expected)
        fail("the code gives another value than the tokens");
}

int main(int argc, char **argv)
{
    size_t tokens = count_argument(argc, argv, 1, "TOKENS");
    size_t functions = count_argument(argc, argv, 2, "FUNCTIONS");
    static struct vector buffers[FUNCTIONS_IN_UNIT];
    uint64_t state = 1;

    struct stopwatch start = stopwatch_start();
    for (size_t i = 0; i < functions; i++) {
        struct vector *buffer = &buffers[i % FUNCTIONS_IN_UNIT];
        if (buffer == buffers)
            for (size_t old = 0; old < FUNCTIONS_IN_UNIT; old++)
                vector_drop(&buffers[old]);
        compile(size_by_octaves(&state, 1, tokens), buffer, &state);
    }
    struct stopwatch elapsed = stopwatch_read(start);
    report(elapsed.cpu / (double)functions * 1e6, "us", elapsed, "functions=%zu", functions);
    return 0;
}
