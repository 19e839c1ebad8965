#!/bin/bash
# Checks the promises of `tests/vm/guest run`. Prints one line a promise and then the counts.
set -uo pipefail

guest=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/guest
readonly guest
passed=0 failed=0 skipped=0
work=$(mktemp -d)
export TMPDIR=$work/temp  # The guest's own folders land here, so that a left-over is seen.
mkdir "$TMPDIR"
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
"$guest" prepare || exit 1

check() {  # check SENTENCE TEST-COMMAND...
  local sentence=$1
  shift
  if "$@"; then
    passed=$((passed + 1))
    echo "ok - $sentence"
  else
    failed=$((failed + 1))
    echo "not ok - $sentence"
  fi
}

is() {  # is WANTED FOUND
  [[ $1 == "$2" ]] || { echo "  wanted: $1"; echo "  found:  $2"; return 1; }
}

has() {  # has FILE TEXT
  grep -qF -- "$2" "$1" || { echo "  no '$2' in:"; sed 's/^/  | /' "$1"; return 1; }
}

nothing_left() {  # No folder and no QEMU of ours.
  is '' "$(ls "$TMPDIR")" && ! pgrep -f "qemu-system-x86_64.*$TMPDIR" >/dev/null
}

run() {  # run OPTIONS -- CMD...: sets `status`, writes the files out and err
  "$guest" run "$@" >out 2>err
  status=$?
}

# The first boot proves most promises: the job's files tell about them.
read_surroundings() {
  mkdir -p 'share, one' home
  cat >job <<'END'
printf '<%s>' "$@"
echo "to stderr" >&2
echo "reopened" >/dev/stderr
echo "$CORDMA_TRIAL|${OTHER-unset}|$PWD|$(id -u)" >'share, one/environment'
cat | wc -c >'share, one/stdin'
echo lost >home/lost
head -c 3000000 /dev/urandom >'share, one/noise'
cat 'share, one/noise'
ibv_devinfo -v -d rxe0 >'share, one/devinfo' 2>&1
(
  ibv_rc_pingpong -d rxe0 -g 1 -n 50 >'share, one/pong' 2>&1 &
  until ss -ltn | grep -q :18515; do sleep 0.1; done
  ibv_rc_pingpong -d rxe0 -g 1 -n 50 127.0.0.1
  wait
) >'share, one/ping' 2>&1
rdma_server >/dev/null 2>&1 &  # Left running: must not keep the guest up.
sleep 1000 &
kill -USR1 $$
END
  export CORDMA_TRIAL='two words, "quoted"' OTHER=hidden
  # shellcheck disable=SC2016
  local words=('' 'a b' "it's" '"$HOME"' $'line\nbreak' '*' '-n' 'ü')
  run --timeout 120 --share "$work/share, one" -- bash "$work/job" "${words[@]}"
  printf '<%s>' "${words[@]}" >wanted
  cat 'share, one/noise' >>wanted
  check "a signal's exit status is 128 and its number" is 138 "$status"
  check "words, line breaks and binary output arrive exactly" cmp wanted out
  check "stderr is separate, and may be reopened" is $'to stderr\nreopened' "$(<err)"
  check "folder, user and CORDMA_ variables are there, others are not" \
    is "$CORDMA_TRIAL|unset|$work|0" "$(<'share, one/environment')"
  check "stdin is empty" is 0 "$(<'share, one/stdin')"
  check "what is written outside a share is lost with the guest" is '' "$(ls home)"
  check "rxe0 is there, its port active" has 'share, one/devinfo' 'PORT_ACTIVE'
  check "GID index 1 of rxe0 is the IPv4 one, RoCE v2" \
    grep -qE 'GID\[ +1\]:.*::ffff:10\.0\.7\.1, RoCE v2' 'share, one/devinfo'
  check "ibv_rc_pingpong runs between two processes" has 'share, one/ping' '50 iters in'
  check "and its server ends well, too" has 'share, one/pong' '50 iters in'
  check "processes left running do not keep the guest up, nothing is left behind" nothing_left
}

live_output() {  # The first line must be here while the command still runs.
  "$guest" run --timeout 60 -- bash -c 'echo first; sleep 600' >live 2>live.err &
  local pid=$!
  for _ in {1..300}; do
    [[ -s live ]] && break
    sleep 0.1
  done
  check "output arrives while the command runs" is first "$(<live)"
  kill -TERM "$pid"
  wait "$pid"
  check "SIGTERM ends the guest" is 143 "$?"
  check "SIGTERM leaves nothing behind" nothing_left
}

failures() {
  run --timeout 60 -- "$work/no such program"
  check "a command that is not there ends with 127 and says so" is 127 "$status"
  check "and names it" has err "no such program"

  run --timeout 12 -- sleep 600
  check "a command beyond the limit ends with 124" is 124 "$status"
  check "and the message names the limit and its option" has err 'killed after 12 s (--timeout)'
  check "the limit leaves nothing behind" nothing_left

  "$guest" run --timeout 60 -- yes 2>err | head -n 1 >out
  check "a reader that leaves ends the guest, as SIGPIPE would" is "141 y" "${PIPESTATUS[0]} $(<out)"

  run --timeout 60 -- bash -c 'echo c >/proc/sysrq-trigger; sleep 600'
  check "a kernel panic is noticed at once and ends with 125" is 125 "$status"
  check "and the kernel's last words are shown" has err 'Kernel panic'

  CORDMA_VM_ACCEL=nonsense run -- true
  check "a QEMU that does not start ends with 125" is 125 "$status"
  check "and its own words are shown" has err 'nonsense'

  mkdir bin
  ln -s "$(type -P dirname)" bin/dirname
  PATH=$work/bin /bin/bash "$guest" prepare >out 2>err
  check "a missing tool ends with 125" is 125 "$?"
  check "and is named with its package and the way out" has err \
    'install the Debian package qemu-system-x86, or run ./dev setup'
}

usage_errors() {
  run --timeout soon -- true
  check "a bad --timeout is refused" is "125 tests/vm/guest: --timeout: not a number of seconds: soon" \
    "$status $(<err)"
  run --share "$work/nowhere" -- true
  check "a share that is not there is refused" has err "no such folder: $work/nowhere"
  run true
  check "a command without -- is refused" has err "unknown option true"
  check "all of this leaves nothing behind" nothing_left
}

read_surroundings
live_output
failures
usage_errors
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
