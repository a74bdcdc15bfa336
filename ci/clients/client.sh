# Sourced by every client script: the target, the cache, the real input and the one line of result.
#
# Target (all four have meaning for every client; no other setting reaches a client):
#   ASSAY_ENDPOINT     http://127.0.0.1:9000      ASSAY_ACCESS_KEY / ASSAY_SECRET_KEY   test / test
# Cache: ASSAY_CLIENTS_HOME (default ${XDG_CACHE_HOME:-$HOME/.cache}/assay-clients) keeps each client's
# own installation, so that a second run starts at once. ASSAY_CLIENTS_TREE names another input directory.
#
# A script ends with one line `client | version | what was run | result` and exit code 0 passed, 1 failed,
# 2 wrong settings, 3 not proven (the client cannot be installed, or the kernel does not allow it).
set -euo pipefail

client=$(basename "$0")
version=-
what=-
step_now=start
[[ -n ${ASSAY_ENDPOINT:-} ]] || { echo "$client: ASSAY_ENDPOINT is not set; start a server or use ci/clients/run" >&2; exit 2; }
: "${ASSAY_ACCESS_KEY:=test}" "${ASSAY_SECRET_KEY:=test}"
export ASSAY_ENDPOINT ASSAY_ACCESS_KEY ASSAY_SECRET_KEY
host=${ASSAY_ENDPOINT#*://}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
home=${ASSAY_CLIENTS_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/assay-clients}
mkdir -p "$home"
work=$(mktemp -d "${TMPDIR:-/tmp}/assay-client.XXXXXX")
log=$work/log
bucket=$client-$$
bucket=${bucket//_/-}

# A machine's own AWS and proxy settings must not decide the outcome. Debian's rclone and others fail on a
# certificate bundle that they cannot use.
unset AWS_CA_BUNDLE AWS_PROFILE AWS_SESSION_TOKEN AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 AWS_DEFAULT_REGION
unset HTTP_PROXY HTTPS_PROXY http_proxy https_proxy ALL_PROXY all_proxy
export AWS_ACCESS_KEY_ID=$ASSAY_ACCESS_KEY AWS_SECRET_ACCESS_KEY=$ASSAY_SECRET_KEY AWS_REGION=us-east-1
export AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null AWS_EC2_METADATA_DISABLED=true

exec 3>&1 >"$log" 2>&1
undo() { :; } # what a client must take back before its directory goes (a mount)

finish() {
  local code=$? result
  trap - EXIT
  undo
  case $code in
    0) result=passed ;;
    3) result="not proven: $step_now" ;;
    *)
      code=1
      result="FAILED: $step_now"
      { echo "--- $client failed at: $step_now; the end of its log:"; tail -n "${ASSAY_CLIENTS_LOG_LINES:-25}" "$log"; echo "---"; } >&3
      ;;
  esac
  printf '%s | %s | %s | %s\n' "$client" "$version" "$what" "$result" >&3
  rm -rf "$work"
  exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

step() { # TEXT: what is being done now, named by the result when it fails
  step_now=$1
  echo "=== $1"
}
unproven() { # REASON
  step_now=$1
  exit 3
}
venv() { # NAME REQUIREMENT...: a virtual environment of its own, made once
  local dir=$home/venv-$1 stamp
  shift
  stamp="$dir/installed: $*"
  stamp=${stamp//\//_}
  stamp=$dir/.${stamp##*_}
  step "install $*"
  if [[ ! -e $stamp ]]; then
    rm -rf "$dir"
    { python3 -m venv "$dir" && "$dir/bin/pip" install -q "$@"; } || unproven "cannot install $* with pip"
    : >"$stamp"
  fi
  PATH=$dir/bin:$PATH
}
debian() { # COMMAND PACKAGE...: a distribution package, if the command is not there yet
  local command=$1
  shift
  command -v "$command" >/dev/null && return
  step "install $*"
  { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$@"; } ||
    unproven "cannot install $* with apt-get"
}
input_tree() { # DIRECTORY: real files, at least 2,000 of them and 100 MB, by hard link or copy
  local from=${ASSAY_CLIENTS_TREE:-} to=$1 sysroot part
  mkdir -p "$to"
  step "collect the input tree"
  if [[ -z $from ]] && sysroot=$(rustc --print sysroot 2>/dev/null) && [[ -d $sysroot/share/doc/rust/html/std ]]; then
    # The toolchain's documentation of std (small files, names with spaces and signs) and its libraries (large).
    for part in share/doc/rust/html/std lib/rustlib; do
      mkdir -p "$to/$(dirname "$part")"
      cp -R "$sysroot/$part" "$to/$part"
    done
  else
    [[ -n $from ]] || from=$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
    cp -R "$from/." "$to/"
    rm -rf "$to/site-packages"
  fi
  find "$to" -type l -delete
  find "$to" -name '*.pyc' -delete
  find "$to" -type d -empty -delete
  files=$(find "$to" -type f | wc -l)
  megabytes=$(($(find "$to" -type f -printf '%s\n' | awk '{ n += $1 } END { print n }') / 1000000))
  ((files >= 2000 && megabytes >= 100)) ||
    unproven "the input tree has $files files and $megabytes MB, 2000 and 100 are needed: set ASSAY_CLIENTS_TREE"
}
some_files() { # DIRECTORY COUNT TO: the first COUNT files under 64 KiB, copied with their paths
  local from=$1 count=$2 to=$3
  mkdir -p "$to"
  (cd "$from" && find . -type f -size -64k -print0 | LC_ALL=C sort -z | sed -zn "1,${count}p" | xargs -0 cp --parents -t "$to")
}
large_file() { # DIRECTORY FILE: 40 MB of real bytes from the largest files
  find "$1" -type f -size +1M -print0 | LC_ALL=C sort -z | xargs -0 cat >"$2"
  truncate -s '<40000000' "$2"
  [[ $(stat -c %s "$2") == 40000000 ]] || unproven "the input tree has less than 40 MB in large files"
}
manifest() { # DIRECTORY: one line a file, its SHA-256 and its name
  (cd "$1" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum)
}
make_bucket() { # for clients that have no call for it
  step "make the bucket with curl"
  curl -sS --fail-with-body --aws-sigv4 aws:amz:us-east-1:s3 --user "$ASSAY_ACCESS_KEY:$ASSAY_SECRET_KEY" \
    -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' -X PUT "$ASSAY_ENDPOINT/$bucket"
}
same_tree() { # DIRECTORY DIRECTORY
  diff <(manifest "$1") <(manifest "$2")
}
refused() { # WORDS COMMAND...: the command must fail, and its output must carry the words
  local words=$1 out
  shift
  if out=$("$@" 2>&1); then
    echo "expected a refusal with '$words', but it succeeded: $*"
    return 1
  fi
  echo "$out"
  grep -qF "$words" <<<"$out"
}
