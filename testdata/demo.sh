#!/usr/bin/env bash
# make demo: the main job on two real processes, in about ten seconds.
#
# Two demo APM processes run, one of them in a mount namespace of its own with its own /tmp, as
# in a container. Each is an agent with a known truth: it checks every message that it gets. The
# correlator finds them and registers; a small sampler feeds it stack-trace-ids; at the end stands
# what each process says it was told.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ]; then
	echo "make demo needs root: it reads other processes and makes a mount namespace" >&2
	exit 1
fi

correlator=bin/correlator
make -s -C testdata demo-glibc lib-glibc-tlsdesc
built=testdata/out
work=$(mktemp -d)
cleanup() {
	local job
	for job in $(jobs -p); do kill "$job" 2>/dev/null || true; done
	wait || true
	rm -rf "$work"
}
trap cleanup EXIT

# await WHAT TEXT FILE [PID]: waits until a file has a text, ten seconds at most, and no longer than
# the process lives that writes it.
await() {
	local tries=200
	until grep -q -- "$2" "$3"; do
		if [ $((tries -= 1)) -eq 0 ] || { [ -n "${4:-}" ] && ! kill -0 "$4" 2>/dev/null; }; then
			echo "waited in vain for $1:" >&2
			cat "$3" "$work/log" >&2 2>/dev/null
			exit 1
		fi
		sleep 0.05
	done
}

heading() { printf '\n== %s\n\n' "$*"; }

library=elastic-jvmti-linux-x64-$(head -c16 /dev/urandom | md5sum | cut -c1-32)-$(head -c16 /dev/urandom | md5sum | cut -c1-32).so
cp "$built/demo-glibc" "$work/demo"
cp "$built/lib-glibc-tlsdesc.so" "$work/$library"

# start NAME COMMAND...: a demo process with its standard input behind descriptor ${control[NAME]}.
declare -A control pid
start() {
	local name=$1
	shift
	mkfifo "$work/$name.in"
	"$@" <"$work/$name.in" >"$work/$name.out" &
	exec {fd}>"$work/$name.in"
	control[$name]=$fd
	await "$name to start" '"event":"ready"' "$work/$name.out"
	pid[$name]=$(sed -n 's/.*"event":"ready","pid":\([0-9]*\).*/\1/p' "$work/$name.out")
}

load="--threads 1 --idle 1 --transaction-ms 500 --gap-ms 50 --auto"
start checkout "$work/demo" --library "$work/$library" --socket "$work/checkout.socket" \
	--service checkout --environment demo $load
mkdir "$work/tmp"
start payment unshare --mount sh -c '
	mount -t tmpfs private-tmp "$1/tmp" && cp "$1/demo" "$1/$2" "$1/tmp" && mount --move "$1/tmp" /tmp
	shift 2; exec "$@"' sh "$work" "$library" \
	/tmp/demo --library "/tmp/$library" --socket /tmp/payment.socket --service payment --environment demo $load

heading "correlator scan: two processes carry the agent's library (payment has its own /tmp)"
$correlator scan

heading "correlator run: it finds them and registers with their agents"
$correlator run --feed-socket "$work/feed" --host-id demo-host --scan-interval 1s 2>"$work/log" &
agent=$!
for name in checkout payment; do
	await "the registration of $name" '"event":"registered"' "$work/$name.out" $agent
done
cat "$work/log"

# The sampler: some 20 times a second it "samples" both worker threads of both processes. A real
# one walks stacks; here every thread has one stack-trace-id, made up from its number.
sampler() {
	local name task end=$((SECONDS + 4))
	while [ $SECONDS -lt $end ]; do
		for name in checkout payment; do
			for task in "/proc/${pid[$name]}/task"/*; do
				read -r comm <"$task/comm" || continue
				task=${task##*/}
				case $comm in busy-* | idle-*) printf '%s %s %032x\n' "${pid[$name]}" "$task" "$task" ;; esac
			done
		done
		sleep 0.05
	done
}
heading "a sampler feeds stack-trace-ids for four seconds; meanwhile, correlator inspect ${pid[payment]}"
sampler | $correlator feed --socket "$work/feed" &
feeder=$!
sleep 2
$correlator inspect "${pid[payment]}"
wait $feeder

heading "what the correlator counted (SIGTERM: it sends what is queued, then ends)"
kill -TERM $agent
wait $agent
tail -n 1 "$work/log"

# field NAME FILE: a number of the process's report.
field() { grep '"event":"report"' "$2" | grep -o "\"$1\":\"\?[^,\"]*" | head -n 1 | sed 's/.*://; s/"//'; }
heading "what the processes say they were told"
printf '%-10s %13s %10s %8s %8s %6s %5s %8s %10s\n' \
	process registrations host-id messages samples torn late foreign malformed
for name in checkout payment; do
	echo quit >&"${control[$name]}"
	await "$name to end" '"event":"bye"' "$work/$name.out"
	out=$work/$name.out
	printf '%-10s %13s %10s %8s %8s %6s %5s %8s %10s\n' "$name" "$(field registrations "$out")" \
		"$(field host_id "$out")" "$(field messages "$out")" "$(field samples "$out")" "$(field torn "$out")" \
		"$(field late_samples "$out")" "$(field foreign "$out")" "$(field malformed "$out")"
done

heading "some transactions of payment, as its agent would store them: samples by stack-trace-id"
grep '"event":"report"' "$work/payment.out" | sed 's/{"thread"/\n&/g' | grep -v '"stacks":{}' | head -n 6 |
	sed -n 's/.*"kind":"\([^"]*\)","trace_id":"\([^"]*\)","transaction_id":"\([^"]*\)".*"stacks":\({[^}]*}\).*/\1 trace \2 transaction \3\n    \4/p'
