#!/usr/bin/env -S python3 -B
"""php builds arrays, sorts, matches, packs and converts, and forks. Its extensions are loaded with RTLD_DEEPBIND: the C
library's malloc would be theirs, and hakmem's that of the rest."""

from program_test import ProgramTest

PROGRAM = r"""<?php
ini_set('memory_limit', '-1');

function work($seed, $count) {
    $rows = []; $words = [];
    for ($i = 0; $i < $count; $i++) {
        $seed = ($seed * 1103515245 + 12345) % 2147483648;
        $word = '';
        for ($k = 3; $k < 12; $k++) $word .= chr(97 + ($seed >> $k) % 26);
        $words[$word][] = $i;
        $rows[] = ['id' => $i, 'word' => $word, 'list' => array_fill(0, $i % 9, $seed)];
    }
    ksort($words);
    $json = json_encode($rows);
    $same = json_decode($json, true) == $rows;
    $vowels = preg_match_all('/[aeiou]{2,}/', $json);
    $packed = gzcompress(serialize($words), 6);
    $back = unserialize(gzuncompress($packed)) == $words;
    $utf16 = iconv('UTF-8', 'UTF-16LE', $json);
    $tokens = count(token_get_all('<?php ' . str_repeat('$a = f("x") + 1; ', 5000)));
    $letters = count(array_filter(array_keys($words), 'ctype_lower'));
    $phar = new ArrayObject(array_map(fn($row) => new DateTime('@' . $row['id']), array_slice($rows, 0, 5000)));
    return implode(' ', [$same, $vowels, $back, md5($utf16), $tokens, $letters, count($phar), hash('sha256', $packed)]);
}

echo implode(' ', array_map('extension_loaded', ['ctype', 'iconv', 'PDO', 'posix', 'tokenizer'])), "\n";
echo work(1, 60000), "\n";
foreach ([2, 3] as $seed) {
    $pid = pcntl_fork();
    if ($pid == 0) {
        file_put_contents("child$seed", work($seed, 20000));
        exit(0);
    }
    pcntl_waitpid($pid, $status);
    echo $status, ' ', file_get_contents("child$seed"), "\n";
}
echo posix_getuid() >= 0, "\n";
"""

with ProgramTest("php") as test:
    (test.dir / "work.php").write_text(PROGRAM)
    test.both(["php", "work.php"], loaded=["php*"])
