#!/usr/bin/env -S python3 -B
"""perl builds hashes, sorts, matches, packs, runs threads (each clones the interpreter) and forks."""

from program_test import ProgramTest

PROGRAM = r"""
use strict; use warnings; use threads;
use Digest::SHA qw(sha256_hex); use Storable qw(freeze thaw dclone);

sub work {
    my ($seed, $count) = @_;
    my (%words, @rows);
    for my $i (1 .. $count) {
        $seed = ($seed * 1103515245 + 12345) % 2147483648;
        my $word = join '', map { chr(97 + ($seed >> $_) % 26) } 3 .. 3 + $seed % 9;
        $words{$word} .= "$i,";
        push @rows, { id => $i, word => $word, list => [ ($seed) x ($i % 7) ] };
    }
    my $text = join ' ', sort keys %words;
    my $vowels = () = $text =~ /[aeiou]{2,}/g;
    (my $swapped = $text) =~ s/(\w)(\w+)/$2$1/g;
    my $copy = dclone(thaw(freeze(\@rows)));
    my $sum = 0;
    $sum += scalar @{ $_->{list} } for grep { $_->{word} =~ /^[a-m].*[n-z]$/ } @$copy;
    delete @words{ grep { length > 6 } keys %words };
    my $lengths = pack('N*', map { length } sort keys %words);
    return join ':', $vowels, $sum, scalar(keys %words), sha256_hex($swapped . $lengths);
}

my $held = { map { $_ => "value $_" x 3 } 1 .. 50000 };    # cloned into each thread, copied on write in each child
print "main ", work(1, 150000), "\n";
my @threads = map { my $n = $_; threads->create(sub { $n . ' ' . work($n, 40000) }) } 2 .. 5;
print 'thread ', $_->join, "\n" for @threads;
for my $n (6, 7) {
    my $pid = open(my $child, '-|') // die "fork: $!";
    if (!$pid) { delete $held->{$_} for 1 .. 40000; print "child $n ", work($n, 40000), "\n"; exit 0 }
    print while <$child>;
    close $child or die "child: $?";
}
print scalar(keys %$held), "\n";
"""

with ProgramTest("perl") as test:
    (test.dir / "work.pl").write_text(PROGRAM)
    test.both(["perl", "work.pl"], loaded=["perl"])
