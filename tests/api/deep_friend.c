/* What deep_plugin.c loads: it lies in a directory that is in that library's run path. */
int friend_answers(void);
int friend_answers(void) { return 42; }
