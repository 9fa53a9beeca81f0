# A program for Ruby, whose functions have no names: see the documentation of package truth.
require "json"

def hashes = (1..50_000).inject(7) { |h, i| (h * 31 + i) & 0xffffff }
def fib(n) = n < 2 ? n : fib(n - 1) + fib(n - 2)
def sorting(numbers) = numbers.sort { |a, b| a <=> b }[7]
def regex(text) = text.gsub(/[0-9]+7/) { |m| m + "x" }.size
def json(value) = JSON.parse(JSON.generate(value)).size

def fails(i)
  raise RangeError if i.odd?
rescue RangeError
  1
end

Box = Struct.new(:n) do
  def add(n) = Box.new(self.n + n)
end

def boxes = (1..3000).sum { |i| Box.new(i).add(i).n }

numbers = (0...3000).map { |i| i * 7919 % 3001 }
ended = false
trap("TERM") { ended = true }
$stdout.sync = true
puts "ready"
until ended
  hashes
  fib(18)
  sorting(numbers)
  regex(numbers.join(" "))
  json({ "words" => numbers, "more" => [1.5, nil, true] })
  1000.times { |i| fails(i) }
  boxes
end
puts JSON.generate({ inclusive: { __libc_start_main: 1 }, work: "__libc_start_main", thread: Process.pid })
