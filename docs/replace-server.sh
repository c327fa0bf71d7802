#!/bin/sh
# Replaces the server of one machine behind nginx while the others go on:
#     replace-server.sh FRONT MACHINE COMMAND...
#     replace-server.sh http://127.0.0.1 10.0.0.1:3000 ssh 10.0.0.1 systemctl restart tpf-server
# FRONT is where nginx listens, MACHINE what its upstream calls the server. COMMAND ends when the
# old server has ended. Status 1: nothing was touched, or the new server is not ready after WAIT seconds.
set -eu
if [ $# -lt 3 ]; then
    echo "replace-server: wanted FRONT MACHINE COMMAND..." >&2
    exit 2
fi
front=${1%/} machine=$2
shift 2
wait=${WAIT:-120}

# Which machine of a group nginx found ready; nothing where none answers, or one only after another.
ready_by() {
    curl -s -m 10 -D - -o "/dev/null" "$front/readyz?group=$1" | tr -d '\r' |
        awk 'NR == 1 { status = $2 } tolower($1) == "x-upstream:" && status == 200 && NF == 2 { print $2 }'
}
another_in() { by=$(ready_by "$1") && [ -n "$by" ] && [ "$by" != "$machine" ]; }
nginx_reads_from_another() { another_in machines; }
nginx_publishes_to_another() { another_in publishing; }
nginx_reads_from_it() { [ "$(ready_by machines)" = "$machine" ]; }
nginx_publishes_to_it() { [ "$(ready_by publishing)" = "$machine" ]; }
it_is_ready() { curl -sf -m 10 -o "/dev/null" "http://$machine/readyz"; }

until_it_holds() {
    end=$(($(date +%s) + wait))
    until "$1"; do
        if [ "$(date +%s)" -ge "$end" ]; then
            echo "replace-server: $machine: $2" >&2
            exit 1
        fi
        sleep 0.2
    done
}

for use in nginx_reads_from_another nginx_publishes_to_another; do
    until_it_holds "$use" "no other server is ready behind $front; it was left as it is"
done
"$@"
until_it_holds it_is_ready "the new server is not ready"
for use in nginx_reads_from_it nginx_publishes_to_it; do
    until_it_holds "$use" "nginx does not use the new server"
done
