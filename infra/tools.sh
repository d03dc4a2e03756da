#!/usr/bin/env bash
# Fetches the programs that only the tests of infra/ and dashboards/ run, where they are not here already: Prometheus
# with promtool, nginx, Postgres, Slurm with munge, Redis. They are unpacked into .tools/: no root, nothing is started. Debian and Ubuntu;
# elsewhere put them on the PATH. Tests without their program skip and say so.
set -euo pipefail
cd "$(dirname "$0")/.."

found() { # PROGRAM: on the PATH, in .tools, or where Debian keeps Postgres
  command -v "$1" >/dev/null || compgen -G ".tools/usr/*bin/$1" >/dev/null ||
    compgen -G "/usr/lib/postgresql/*/bin/$1" >/dev/null || compgen -G ".tools/usr/lib/postgresql/*/bin/$1" >/dev/null
}
missing() { for name in prometheus promtool nginx initdb slurmctld-wlm slurmd-wlm srun munged redis-server; do found "$name" || echo "$name"; done; }

[ -n "$(missing)" ] || exit 0
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
  echo "error: no apt-get here: put on the PATH: $(missing | xargs)" >&2
  exit 2
fi
packages=()
if ! found promtool || ! found prometheus; then packages+=(prometheus); fi
if ! found nginx; then packages+=(nginx); fi
if ! found initdb; then
  packages+=("$(apt-cache depends postgresql | sed -n 's/.*Depends: \(postgresql-[0-9]*\)$/\1/p')")
fi
for package in slurmctld:slurmctld-wlm slurmd:slurmd-wlm slurm-client:srun munge:munged; do
  if ! found "${package#*:}"; then packages+=("${package%:*}"); fi
done
if ! found redis-server; then packages+=(redis-server redis-tools libjemalloc2 liblzf1); fi
if ! found slurmd-wlm; then packages+=(slurm-wlm-basic-plugins libhwloc15 libmunge2); fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
chmod 755 "$scratch"
download() { (cd "$scratch" && apt-get -qq download "${packages[@]}"); }
if ! download 2>/dev/null; then
  apt-get -qq update # the lists may be missing or old; only root may renew them
  download
fi
mkdir -p .tools
for package in "$scratch"/*.deb; do
  dpkg-deb -x "$package" .tools
done
if [ -n "$(missing)" ]; then
  echo "error: still missing: $(missing | xargs)" >&2
  exit 1
fi
echo "unpacked into .tools: ${packages[*]}"
