#!/usr/bin/env bash
# make demo: the main job on five real processes, in about fifteen seconds.
#
# Four of them are demo APM processes, one in a mount namespace of its own with its own /tmp, as in a
# container, and one a JVM without any flags. Each is an agent with a known truth: it knows how much
# CPU time it burnt in which transaction, the JVM also in which method, one what it waited for, and
# checks every message that it gets. The fifth is a program in Python with such a truth, that publishes
# by OpenTelemetry's standards, by which a process is told nothing. The correlator finds them, registers, and samples
# them; at the end stands, beside what each process did, what it was told, or was recorded.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ]; then
	echo "make demo needs root: it samples other processes and makes a mount namespace" >&2
	exit 1
fi

correlator=bin/correlator
rate=97 # Hz: prime, so that no rhythm of a program keeps pace with it
otlp=${OTLP:+yes}

# A JDK: that of JAVA_HOME, of PATH, the last one in /usr/lib/jvm, or Debian's.
jdk() { command -v javac || ls /usr/lib/jvm/*/bin/javac 2>/dev/null | tail -n 1; }
if [ -z "${JAVA_HOME:-}" ]; then
	[ -n "$(jdk)" ] || .ci/need javac:openjdk-17-jdk-headless
	JAVA_HOME=$(realpath "$(jdk)")
	export JAVA_HOME=${JAVA_HOME%/bin/javac}
fi

make -s -C testdata demo-glibc lib-glibc-tlsdesc demo-jvm otel-publisher-glibc
built=testdata/out
work=$(mktemp -d)
agent= backend= quota=
go build -o "$work/show" ./internal/lab/backend/show
page=127.0.0.1:11233 # SCREENSHOTS=DIR: pictures of pages go there
[ -z "${SCREENSHOTS:-}" ] || go build -o "$work/screenshots" ./internal/lab/screenshots
cleanup() {
	local job
	for job in $(jobs -p); do kill "$job" 2>/dev/null || true; done
	wait || true
	rm -rf "$work"
	[ -z "$quota" ] || rmdir "$quota"
}
trap cleanup EXIT

# limit PID: puts a process into a cgroup of its own with 20 ms of CPU time in 50, if one may be made here: $quota.
limit() {
	local root
	for root in $(awk '$3 == "cgroup2" || $3 == "cgroup" && $4 ~ /(^|,)cpu(,|$)/ { print $2 }' /proc/mounts); do
		mkdir "$root/correlator-demo-$$" 2>/dev/null || continue
		quota=$root/correlator-demo-$$
		if { echo 20000 50000 >"$quota/cpu.max" || { echo 50000 >"$quota/cpu.cfs_period_us" &&
			echo 20000 >"$quota/cpu.cfs_quota_us"; }; } 2>/dev/null && echo "$1" >"$quota/cgroup.procs"; then
			return
		fi
		rmdir "$quota"
		quota=
	done
}

# throttled prints for how many ms the cgroup was throttled, by the kernel's clock.
throttled() {
	awk '$1 == "throttled_usec" { print $2 / 1e3 } $1 == "throttled_time" { print $2 / 1e6 }' "$quota/cpu.stat"
}

# await WHAT TEXT FILE PID: waits until a file has a text, ten seconds at most, and no longer than the
# process lives that is to see to it.
await() {
	local tries=200
	until grep -q -- "$2" "$3"; do
		if ! kill -0 "$4" 2>/dev/null && ! grep -q -- "$2" "$3"; then
			cat "$work/log" >&2 # who ends says why
			exit 1
		elif [ $((tries -= 1)) -eq 0 ]; then
			echo "waited in vain for $1:" >&2
			cat "$3" "$work/log" >&2
			exit 1
		fi
		sleep 0.05
	done
}

heading() { printf '\n== %s\n\n' "$*"; }

random() { od -An -tx1 -N16 /dev/urandom | tr -d ' \n'; }
library=elastic-jvmti-linux-x64-$(random)-$(random).so
cp "$built/demo-glibc" "$work/demo"
cp "$built/lib-glibc-tlsdesc.so" "$work/$library"
mkdir "$work/jvm"
cp "$built/demo-jvm.so" "$work/jvm/$library"
: >"$work/log"

# start NAME COMMAND...: a demo process, obeying descriptor ${control[NAME]}.
declare -A control pid
start() {
	local name=$1 fd
	shift
	mkfifo "$work/$name.in"
	: >"$work/$name.out"
	"$@" <"$work/$name.in" >>"$work/$name.out" 2>>"$work/log" &
	pid[$name]=$!
	exec {fd}>"$work/$name.in"
	control[$name]=$fd
	await "$name to start" '"event":"ready"' "$work/$name.out" "${pid[$name]}"
}

# obey NAME COMMAND EVENT: has a demo process do something.
obey() {
	echo "$2" >&"${control[$1]}"
	await "$1 to $2" "\"event\":\"$3\"" "$work/$1.out" "${pid[$1]}"
}

# Each has a thread that burns CPU time in transactions of half a second, and one that sleeps in them.
load="--threads 1 --idle 1 --transaction-ms 500 --gap-ms 50 --auto"
start checkout "$work/demo" --library "$work/$library" --socket "$work/checkout.socket" \
	--service checkout --environment demo $load
mkdir "$work/tmp"
start payment unshare --mount sh -c '
	mount -t tmpfs private-tmp "$1/tmp" && cp "$1/demo" "$1/$2" "$1/tmp" && mount --move "$1/tmp" /tmp
	shift 2; exec "$@"' sh "$work" "$library" \
	/tmp/demo --library "/tmp/$library" --socket /tmp/payment.socket --service payment --environment demo $load

# The JVM has one thread that will serve requests, each a transaction of 1.2 s of CPU time.
start shop "$JAVA_HOME/bin/java" -cp "$built/demo-jvm.jar" Demo "$work/jvm/$library" "$work/shop.socket" shop demo 1 busy

# So has the program in Python, each of 0.6 s. python3 may be a script that executes the interpreter.
python=$(python3 -c 'import sys; print(sys.executable)')
start orders "$python" testdata/python/shop.py "$built/otel-publisher-glibc.so" orders demo

# billing will have one transaction: CPU time, for which its quota does not suffice, a lock, a socket and a sleep.
start billing "$work/demo" --library "$work/$library" --socket "$work/billing.socket" \
	--service billing --environment demo --idle 1 --manual

heading "correlator scan: who takes part (payment has its own /tmp, shop is a JVM, orders is in Python)"
$correlator scan

lasting=1m
[ -z "${SCREENSHOTS:-}" ] || lasting=10m # pictures take as long as they take
$correlator record -d $lasting --rate $rate --service 'shop|orders' -o "$work/shop.pb.gz" >"$work/shop.recorded" 2>&1 &
recording=$!

heading "correlator run --samples-per-second $rate --keep 1m: it finds them and registers with all agents but that of orders"
shown="-methods ${pid[shop]}:$work/shop.out -contexts ${pid[orders]}:$work/orders.out -rate $rate"
if [ -n "$otlp" ]; then
	"$work/show" -socket "$work/otlp.sock" -stacks checkout "$work/demo" >"$work/shown" 2>>"$work/log.show" &
	backend=$!
fi
$correlator run --samples-per-second $rate --keep $lasting --host-id demo-host --admin-socket "$work/admin.sock" \
	${otlp:+--otlp-endpoint "unix:$work/otlp.sock"} \
	${SCREENSHOTS:+--live-listen "ws://$page" --include-service "checkout|payment|shop|orders|billing"} 2>"$work/log" &
agent=$!
for name in checkout payment shop billing; do
	await "the registration of $name" '"event":"registered"' "$work/$name.out" $agent
	await "its line in the log" "registered.*\"pid\": ${pid[$name]}," "$work/log" $agent
done
await "the line of orders in the log" "attached.*\"pid\": ${pid[orders]}," "$work/log" $agent
cat "$work/log"

# The recording, which has begun before, needs as long as the agent to load what unwinds stacks.
for _ in $(seq 100); do
	$correlator status --admin-socket "$work/admin.sock" >"$work/status"
	! grep -q 'by frame pointers in 0$' "$work/status" || break
	sleep 0.1
done
sleep 1
obey shop "serve 1" serving
obey orders serve serving
heading "it samples for some seconds; meanwhile, correlator inspect ${pid[payment]}"
$correlator inspect "${pid[payment]}"

heading "correlator record -d 3s --service payment: a picture, for go tool pprof"
$correlator record -d 3s --service payment -o "$work/payment.pb.gz" 2>&1
echo
go tool pprof -top -nodecount 6 "$work/payment.pb.gz" 2>/dev/null

sleep 2
[ -z "${SCREENSHOTS:-}" ] || "$work/screenshots" "$SCREENSHOTS" live "http://$page/" shop
obey orders end ended
kill -TERM $recording # it keeps what was sampled
wait $recording || { cat "$work/shop.recorded" >&2; exit 1; }
obey shop "end 1" ended
if [ -n "${SCREENSHOTS:-}" ]; then
	$correlator explain --admin-socket "$work/admin.sock" --service shop --slowest 1 -o json >"$work/slowest"
	slowest=$(sed -n 's/.*"transaction_id": *"\([0-9a-f]*\)".*/\1/p' "$work/slowest" | head -n 1)
	$correlator explain --admin-socket "$work/admin.sock" "$slowest" -o html -O "$work/page.html"
	"$work/screenshots" "$SCREENSHOTS" flame "$work/page.html"
	"$work/screenshots" "$SCREENSHOTS" sum
fi
for name in checkout payment; do obey $name stop-threads threads; done
limit "${pid[billing]}"
obey billing "account 1" accounted
throttled=${quota:+$(throttled)}
explained=$(sed -n 's/.*"accounted".*"transaction_id":"\([0-9a-f]*\)".*/\1/p' "$work/billing.out")
for _ in $(seq 100); do # until it is fetched from the kernel, and names are read
	$correlator explain --admin-socket "$work/admin.sock" "$explained" >"$work/explained" 2>>"$work/log.explain" || true
	! grep -q 'account .*in transaction' "$work/explained" || break
	sleep 0.1
done
[ -z "${RECORDING:-}" ] || go run ./internal/lab/recording -admin-socket "$work/admin.sock" -id "$explained" "$RECORDING"
obey billing quit report
about="what it serves, and how that goes"
[ -n "$otlp" ] || about="$about (samples of orders are for a backend alone: OTLP=1)"
heading "correlator status: $about"
$correlator status --admin-socket "$work/admin.sock"
kill -TERM $agent # it sends what is queued, then ends
wait $agent || { cat "$work/log" >&2; exit 1; }

heading "how every sample ended, by the last line of its log"
tail -n 1 "$work/log" | tr -d '{} "' | tr ',' '\n' | awk -F: '
	function add(sum, name) { total[sum] += $2; terms[sum] = terms[sum] (terms[sum] ? " + " : "") $2 " " name }
	/^kernel_/ { add("in the kernel", substr($1, 8)) }
	/^sampled_/ { add("handed over", substr($1, 9)) }
	/^samples_(sent|dropped)/ { add("queued", substr($1, 9)) }
	/^(messages|registrations)/ { count[$1] = $2 }
	END {
		n = split("in the kernel,handed over,queued", sums, ",")
		for (i = 1; i <= n; i++) printf "  %-14s %5d = %s\n", sums[i], total[sums[i]], terms[sums[i]]
		printf "  %-14s %5d, %d registrations among them\n", "messages", count["messages"], count["registrations"]
	}'

# A transaction of each kind by the thread that works, and one by the thread that sleeps.
table='
	function field(key) {
		match($0, "\"" key "\":\"?[^,\"}]*")
		key = substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3)
		sub(/^"/, "", key)
		return key
	}
	function stacks(list, n, i, j, most, rest) {
		sub(/.*"stacks":[{]/, "", list)
		sub(/[}].*/, "", list)
		n = split(list, pairs, ",")
		for (i = 1; i <= n; i++) { split(pairs[i], pair, ":"); id[i] = substr(pair[1], 2, 22); of[i] = pair[2] }
		shown = n == 4 ? 4 : 3
		for (i = 1; i <= n && i <= shown; i++) {
			most = i
			for (j = i + 1; j <= n; j++) if (of[j] + 0 > of[most] + 0) most = j
			printf "  %18s%-30s%27d\n", "", id[most], of[most]
			id[most] = id[i]; of[most] = of[i]
		}
		for (; i <= n; i++) rest += of[i]
		if (n > shown) printf "  %18s%-30s%27d\n", "", "and " n - shown " others", rest
	}
	NR == 1 {
		print "  THREAD  KIND      TRACE, STACK-TRACE-IDS                CPU ms  EXPECTED  SAMPLES"
		cpu = field("cpu_in_transactions_ns") / 1e9
		all = sprintf("  in all: %.2f s of CPU x %d Hz = %.1f; received %d, late %d, torn %d, foreign %d", cpu, rate,
			cpu * rate, field("samples"), field("late_samples"), field("torn_samples"), field("foreign_samples"))
		next
	}
	{
		thread = field("thread"); kind = field("kind")
		if (field("end_ns") == 0 || thread == 2 && slept++ || thread == 1 && worked[kind]++) next
		cpu = field("cpu_ns")
		printf "  %-6s  %-8s  %s  %8.1f  %8.1f  %7d\n", (thread == 1 ? "busy-1" : "idle-2"), kind, field("trace_id"),
			cpu / 1e6, cpu / 1e9 * rate, field("samples")
		stacks($0)
	}
	END { print all }'
for name in checkout payment shop; do
	heading "$name: what it did (EXPECTED: CPU time x $rate Hz), and what it was told (SAMPLES)"
	obey $name quit report
	grep '"event":"report"' "$work/$name.out" | sed 's/{"thread"/\n&/g' | awk -v rate=$rate "$table"
done

obey orders quit bye

heading "correlator explain: one transaction of billing, beside its own clocks"
[ -n "$quota" ] || echo "no time is throttled: a cgroup with a quota of CPU time may not be made here"
grep '"event":"accounted"' "$work/billing.out" | tr -d '"{}' | tr ',' '\n' | awk -F: -v throttled="$throttled" '
	/^(cpu|lock|net|sleep|wall)_ns/ { ms[substr($1, 1, length($1) - 3)] = $2 / 1e6 }
	END {
		printf "its clocks: %.1f ms, of it %.1f ms on a CPU, lock (of another transaction) %.1f ms, network %.1f ms, " \
			"sleep %.1f ms\n", ms["wall"], ms["cpu"], ms["lock"], ms["net"], ms["sleep"]
		printf throttled ? "its cgroup was throttled for %.1f ms\n\n" : "\n", throttled
	}'
sed '/^THREAD /,$d' "$work/explained"

heading "correlator record --service 'shop|orders': the methods of shop, and the transactions of orders"
"$work/show" -recording "$work/shop.pb.gz" $shown

if [ -n "$otlp" ]; then
	heading "a backend that takes OTLP has the frames behind the ids"
	kill -TERM $backend
	wait $backend || { cat "$work/log.show" >&2; exit 1; }
	cat "$work/shown"
	for id in $(sed -n 's/^ *stack \([^,]*\), computed.*/\1/p' "$work/shown"); do
		grep -q -- "\"$id\"" "$work/checkout.out" || { echo "the agent of checkout was not told of $id" >&2; exit 1; }
	done
	grep -q ' native  [a-z][a-z0-9_]* ' "$work/shown" || { echo "no frame is in a function of the demo" >&2; exit 1; }
	printf '\n  %s\n' "The agent of checkout was told of just these ids of its stacks."
fi

printf '\n%s\n' 'The same code has the same stack-trace-id in all: on every machine, and after every restart.'
