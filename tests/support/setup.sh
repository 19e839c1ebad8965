#!/bin/bash
# Installs what ./dev needs, with nothing but bash and Debian's apt-get:
#     setup.sh [--check] GROUP...      build, check, docs, package, guest
#     setup.sh everything [--check]    all groups: `./dev setup`
set -euo pipefail
shopt -s inherit_errexit

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
guest=tests/vm/guest

die() {
  echo "dev: $*" >&2
  exit 1
}

usage() {
  echo "dev: $*" >&2
  echo "dev: './dev help' lists the commands." >&2
  exit 2
}

# Debian's names. The guest's come from `tests/vm/guest packages`.
packages_build=(g++ dpkg-dev meson ninja-build cmake pkg-config python3 libibverbs-dev librdmacm-dev
  liburing-dev libjemalloc-dev libssl-dev openssl catch2 libcli11-dev ibverbs-providers
  # Meson finds it: what was compiled once, in whatever build folder or clone, is not again.
  ccache
  # Ranks that mpirun starts.
  libpmix-dev
  # Messages of another kind than ours, for tests/rpc.
  libprotobuf-dev protobuf-compiler
  # Programs that softverbs must run; and what makes hosts out of network namespaces.
  ibverbs-utils perftest python3-pyverbs qperf ucx-utils libfabric-bin openmpi-bin libopenmpi-dev
  rdmacm-utils fio iproute2
  # For bench: it counts instructions; what our coroutines and our collectives stand beside.
  valgrind libasio-dev libgloo-dev
  # Probes (docs/metrics.md).
  systemtap-sdt-dev
  # The program's log (docs/logging.md).
  libspdlog-dev
  # The API reference, and the test that its doc comments are understood.
  doxygen)
packages_check=(clang-14 libclang-rt-14-dev clang-19 libclang-rt-19-dev libc++-19-dev libc++abi-19-dev clang-format-19
  clang-tidy-19 codespell lld shellcheck git
  # promtool, which checks pages of metrics and Grafana's queries.
  prometheus
  # rpmspec and systemd-analyze, which check recipes of packaging/.
  rpm systemd
  # To build jemalloc from its source.
  dpkg-dev make)
# The site (tools/dev/site), and what reads its man pages.
packages_docs=(doxygen python3-markdown-it python3-pygments man-db)
packages_package=(debhelper dpkg-dev make lintian debootstrap)

packages_of() {  # GROUP...: the packages of these groups, one a line
  local group
  for group in "$@"; do
    case $group in
      build) printf '%s\n' "${packages_build[@]}" ;;
      check) printf '%s\n' "${packages_check[@]}" ;;
      docs) printf '%s\n' "${packages_docs[@]}" ;;
      package) printf '%s\n' "${packages_package[@]}" ;;
      guest) if [[ -x $guest ]]; then "$guest" packages | tr -s ' ' '\n'; fi ;;
    esac
  done
}

missing_packages() {  # GROUP...
  local wanted installed
  wanted=$(packages_of "$@" | sort -u)
  # Fails when one was never known, which is no error here.
  # shellcheck disable=SC2016,SC2086
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $wanted 2>/dev/null) || true
  comm -23 <(echo "$wanted") <(sed -n 's/^installed //p' <<<"$installed" | sort -u)
}

# On another distribution: what is needed, by what can be asked anywhere.
missing_elsewhere() {  # GROUP...
  local command module
  for command in g++ meson ninja pkg-config python3 protoc doxygen; do
    command -v "$command" >/dev/null || echo "the command $command"
  done
  for module in libibverbs librdmacm liburing jemalloc openssl catch2 CLI11 protobuf-lite; do
    pkg-config --exists "$module" 2>/dev/null || echo "the library $module, with its headers"
  done
  if ! echo '#include <valgrind/callgrind.h>' | g++ -E -x c++ - >/dev/null 2>&1; then
    echo "valgrind, with its headers"
  fi
  if [[ " $* " == *" docs "* ]] && ! /usr/bin/python3 -c 'import markdown_it, pygments' 2>/dev/null; then
    echo "markdown_it and pygments, for /usr/bin/python3"
  fi
}

setup() {  # [--check] GROUP...
  local only_check=
  if [[ ${1-} == --check ]]; then only_check=1 && shift; fi
  local missing
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    missing=$(missing_elsewhere "$@")
    if [[ -z $missing ]]; then return; fi
    echo "This is not Debian: nothing is installed for you. Missing:"
    echo "$missing"
    echo "Debian's names for all that is used: $(packages_of "$@" | sort -u | xargs)"
    return 1
  fi
  missing=$(missing_packages "$@" | xargs)
  if [[ -z $missing ]]; then return; fi
  if [[ -n $only_check ]]; then
    printf '%s\n' "Missing packages ('./dev setup' installs them):"
    xargs -n1 echo ' ' <<<"$missing"
    return 1
  fi
  local as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "not root, and no sudo: run as root: apt-get install $missing"
    as_root=(sudo)
  fi
  echo "Installing ${as_root[*]:+with sudo }from Debian (minutes, the first time): $missing"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y)
  "${apt[@]}" update >/dev/null
  # Debian would start the server with its package, and only promtool is used.
  if [[ " $missing " == *" prometheus "* && -d /run/systemd/system ]]; then
    "${as_root[@]}" systemctl --quiet mask prometheus.service
  fi
  # shellcheck disable=SC2086
  "${apt[@]}" install --no-install-recommends $missing >/dev/null
}

everything() {  # [--check]
  case ${1-} in
    '' | --check) (($# <= 1)) || usage "setup takes no argument '$2'" ;;
    *) usage "setup has no option '$1'" ;;
  esac
  setup ${1:+"$1"} build guest check docs package
  echo "All packages are there."
}

if [[ ${1-} == everything ]]; then everything "${@:2}"; else setup "$@"; fi
