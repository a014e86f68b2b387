"""The benchmark lab: which programs are run under which allocators, how they are measured, judged and shown.

    rows        the rows of the benchmark and the targets of each: data, no code
    allocators  finds the libraries, cleans the environment, proves which malloc a program got
    measure     builds the programs, runs one, runs a row in interleaved rounds
    judge       ratios per round, their quartiles, verdicts
    report      tables, the machine's description, JSON and CSV
"""
