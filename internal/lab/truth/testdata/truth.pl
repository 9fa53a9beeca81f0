# A program for Perl, whose functions have no names: see the documentation of package truth.
use strict;
use warnings;

sub hashes { my $h = 7; $h = ($h * 31 + $_) & 0xffffff for 1 .. 50000; return $h }
sub fib { my $n = shift; return $n < 2 ? $n : fib($n - 1) + fib($n - 2) }
sub sorting { return (sort { $a <=> $b } @_)[7] }
sub regex { my $text = shift; $text =~ s/([0-9]+7)/$1 . "x"/ge; return length $text }
sub fails { my $i = shift; return eval { die "no\n" if $i % 2; 1 } || 0 }
sub add { my ($self, $n) = @_; $self->{n} += $n; return $self }
sub boxes { my $t = 0; $t += (bless { n => $_ }, "main")->add($_)->{n} for 1 .. 3000; return $t }

my @numbers = map { $_ * 7919 % 3001 } 0 .. 2999;
my $ended = 0;
local $SIG{TERM} = sub { $ended = 1 };
$| = 1;
print "ready\n";
until ($ended) {
    hashes();
    fib(15);
    sorting(@numbers);
    regex("@numbers");
    fails($_) for 1 .. 1000;
    boxes();
}
print qq({"inclusive": {"__libc_start_main": 1}, "work": "__libc_start_main", "thread": $$}\n);
