#!/usr/bin/env bash
# Three brokers on this host; broker 2 is away while a transaction ends, a group and a record are deleted, and the marker and
# the tombstones are compacted away. Needs Java 17 with its compiler, Kafka 4.x in $KAFKA_HOME, and a free port range at $PORT.
#
#   KAFKA_HOME=~/kafka_2.13-4.4.0 ./reproduce.sh        exit code 1: reproduced; 0: not reproduced; 2: failed
set -euo pipefail

: "${KAFKA_HOME:?the folder of an unpacked Kafka}"
port=${PORT:-19090}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
bin=$KAFKA_HOME/bin
export KAFKA_HEAP_OPTS="-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
brokers="localhost:$((port + 1)),localhost:$((port + 3))" # broker 2 is away for a while
declare -A pid=()

end() {
    trap - EXIT
    kill -9 "${pid[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$work"
    exit "$1"
}
failed() {
    echo "failed: $1" >&2
    tail -n 3 "$work"/*.log >&2 || true
    end 2
}
trap 'failed "line $LINENO"' ERR
trap 'end 2' EXIT INT TERM

until_true() { # until_true WHAT COMMAND...: for at most 60 s
    local what=$1 deadline=$((SECONDS + 60))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $deadline ] || failed "waited 60 s for $what"
        sleep 0.2
    done
}
topics() { "$bin/kafka-topics.sh" --bootstrap-server "$brokers" "$@"; }
groups() { "$bin/kafka-consumer-groups.sh" --bootstrap-server "$brokers" "$@"; }
commit() { groups --reset-offsets --execute --group "$1" --topic input --to-offset "$2" >>"$work/commits.log"; }
producer=("$bin/kafka-console-producer.sh" --bootstrap-server "$brokers" --property parse.key=true
    --property key.separator== --property null.marker=NULL --timeout 10)
records() { "${producer[@]}" --topic "$1" 2>>"$work/producer.log"; } # lines key=value; NULL is a tombstone
dump() { # dump BROKER TOPIC [OPTION]: every record of a replica, as its files have it
    local files
    rm -rf "$work/copy" && mkdir "$work/copy" # a cleaner replaces segments while the tool reads them
    find "$work/$1/$2-0" -name '*.log' -size +0 -exec cp -t "$work/copy" {} + || return 1
    files=$(find "$work/copy" -type f | sort | paste -sd,)
    "$bin/kafka-dump-log.sh" --files "$files" --print-data-log "${@:3}" 2>/dev/null
}
start() {
    "$bin/kafka-server-start.sh" "$work/$1.properties" >>"$work/broker-$1.log" 2>&1 &
    pid[$1]=$!
}
in_sync() { # in_sync COUNT: on all partitions with three replicas
    [ "$(topics --describe | grep -c "Isr: [0-9,]*" || true)" -gt 0 ] &&
        ! topics --describe | grep 'Replicas: .,.,.' | grep -Ev "Isr: .(,.){$(($1 - 1))}(\s|$)"
}
lead() { # lead BROKER: of the offsets' partition and of t
    local order='[1,3,2]'
    [ "$1" = 2 ] && order='[2,3,1]'
    printf '{"version":1,"partitions":[{"topic":"__consumer_offsets","partition":0,"replicas":%s},{"topic":"t","partition":0,"replicas":%s}]}' \
        "$order" "$order" >"$work/assignment.json"
    "$bin/kafka-reassign-partitions.sh" --bootstrap-server "$brokers" --execute \
        --reassignment-json-file "$work/assignment.json" >>"$work/admin.log"
    "$bin/kafka-leader-election.sh" --bootstrap-server "$brokers" --election-type preferred \
        --path-to-json-file "$work/assignment.json" >>"$work/admin.log"
    until_true "broker $1 to lead" leads "$1"
}
leads() { [ "$(topics --describe --topic '(__consumer_offsets|t)' | grep -c "Leader: $1")" = 2 ]; }
consumed() { # consumed GROUP: the first record that a consumer of the group gets within 12 s
    "$bin/kafka-console-consumer.sh" --bootstrap-server "$brokers" --topic input --group "$1" --max-messages 1 \
        --timeout-ms 12000 --consumer-property auto.offset.reset=earliest --consumer-property enable.auto.commit=false \
        2>/dev/null | grep '^record ' || echo "no record"
}

# --- A cluster with short timers: a marker and a tombstone may go 0.3 s after a cleaner has met them.
id=$("$bin/kafka-storage.sh" random-uuid 2>/dev/null | tail -1)
for n in 1 2 3; do
    cat >"$work/$n.properties" <<END
process.roles=broker,controller
node.id=$n
listeners=PLAINTEXT://localhost:$((port + n)),CONTROLLER://localhost:$((port + 3 + n))
controller.listener.names=CONTROLLER
controller.quorum.voters=1@localhost:$((port + 4)),2@localhost:$((port + 5)),3@localhost:$((port + 6))
log.dirs=$work/$n
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
replica.lag.time.max.ms=2000
auto.leader.rebalance.enable=false
auto.create.topics.enable=false
offsets.topic.num.partitions=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
producer.id.expiration.ms=1500
producer.id.expiration.check.interval.ms=300
log.roll.ms=100
log.cleaner.backoff.ms=100
log.cleaner.dedupe.buffer.size=2097152
log.cleaner.min.cleanable.ratio=0.0001
log.cleaner.max.compaction.lag.ms=200
log.cleaner.delete.retention.ms=300
file.delete.delay.ms=1000
END
    "$bin/kafka-storage.sh" format -t "$id" -c "$work/$n.properties" >>"$work/format.log" 2>&1 &
    formats[n]=$!
done
wait "${formats[@]}"
for n in 1 2 3; do start "$n"; done
until_true "brokers" topics --list
for topic in t __consumer_offsets __transaction_state; do
    topics --create --topic "$topic" --replica-assignment 1:3:2 --config cleanup.policy=compact >>"$work/admin.log" 2>&1
done
topics --create --topic input --replica-assignment 1:3 --config cleanup.policy=delete >>"$work/admin.log"
seq -f 'k=record %g' 0 99 | records input
echo "k=v" | records t
commit deleted 10
commit frozen 10

# --- A transaction with an offset of group "frozen" is open while broker 2 goes away.
mkfifo "$work/go"
java $KAFKA_HEAP_OPTS -cp "$KAFKA_HOME/libs/*" "$here/OffsetsInTransaction.java" "$brokers" frozen input 60 \
    <"$work/go" >"$work/transaction.log" 2>&1 &
pid[transaction]=$!
exec 3>"$work/go"
until_true "the transaction's offset" grep -q sent "$work/transaction.log"
until_true "three replicas in sync" in_sync 3
echo "broker 2 goes away"
kill -9 "${pid[2]}"
until_true "broker 2 to leave the ISR" in_sync 2
echo commit >&3
until_true "the commit" grep -q committed "$work/transaction.log"
commit frozen 61 # newer than the transaction's
groups --delete --group deleted >>"$work/admin.log"
echo "k=NULL" | records t

# --- Segments roll, and the cleaners of brokers 1 and 3 remove the marker and the tombstones.
"${producer[@]}" --topic t < <(while sleep 0.05; do echo "filler=$RANDOM"; done) >/dev/null 2>>"$work/producer.log" &
pid[filler]=$!
"$bin/kafka-console-consumer.sh" --bootstrap-server "$brokers" --topic t --group filler \
    --consumer-property auto.commit.interval.ms=50 >/dev/null 2>&1 &
pid[commits]=$!
removed() {
    local one
    for one in 1 3; do
        dump "$one" t >"$work/dump" && ! grep -q 'keySize: 1 ' "$work/dump" || return 1
        dump "$one" __consumer_offsets --offsets-decoder >"$work/dump" && ! grep -qE 'endTxnMarker|"deleted"' "$work/dump" ||
            return 1
    done
}
until_true "markers and tombstones to be removed" removed
echo "brokers 1 and 3 have removed the marker and the tombstones; broker 2 returns"
start 2
until_true "three replicas in sync" in_sync 3
disown "${pid[filler]}" "${pid[commits]}" # bash reports no kill of these
kill -9 "${pid[filler]}" "${pid[commits]}" 2>/dev/null || true

# --- What consumers get, by who coordinates them.
declare -A got=()
brokers="localhost:$((port + 1)),localhost:$((port + 2)),localhost:$((port + 3))"
for n in 1 2; do
    lead "$n"
    got[frozen$n]=$(consumed frozen)
    got[deleted$n]=$(consumed deleted)
done
for n in 1 3 2; do got[t$n]=$(dump "$n" t | grep -o 'key: k payload: .*' || echo "deleted"); done

printf '%-58s %-16s %-16s\n' "" "broker 1" "broker 2"
printf '%-58s %-16s %-16s\n' \
    "group frozen, committed offset 61: first record" "${got[frozen1]}" "${got[frozen2]}" \
    "group deleted, was at offset 10: first record" "${got[deleted1]}" "${got[deleted2]}" \
    "topic t, key k (deleted)" "${got[t1]}" "${got[t2]}"
[ "${got[t1]}" = "${got[t3]}" ] || failed "brokers 1 and 3 differ"
if [ "${got[frozen1]}" = "${got[frozen2]}" ] && [ "${got[deleted1]}" = "${got[deleted2]}" ] && [ "${got[t1]}" = "${got[t2]}" ]; then
    echo "not reproduced: the replicas agree"
    end 0
fi
end 1
