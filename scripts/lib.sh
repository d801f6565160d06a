# Shell functions that scripts/setup, scripts/demo and scripts/test share. Sourced, never run.
# shellcheck shell=bash

# Needed by nothing here, and asks a desktop that is not there: GIO's proxy look-up then prints dconf-CRITICAL lines.
export GSETTINGS_BACKEND=memory

# say TEXT: one line for the person, on standard error, so that standard output stays the script's result.
say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# die TEXT: the same, and the end.
die() {
    say "$*"
    exit 1
}

# have PROGRAM: whether it can be run.
have() { command -v "$1" >/dev/null 2>&1; }

# version_at_least HAVE WANTED: whether the first of two dotted versions is not older.
version_at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# rust_wanted: the oldest Rust that builds Gantry, as Cargo.toml says.
rust_wanted() { sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml; }

# rust_found: the version of the cargo that would run, and of its rustc, whichever is older; nothing where one is missing.
rust_found() {
    local cargo rustc
    cargo=$(cargo --version 2>/dev/null | cut -d ' ' -f 2) || return 0
    rustc=$(rustc --version 2>/dev/null | cut -d ' ' -f 2) || return 0
    printf '%s\n%s\n' "$cargo" "$rustc" | sort -V | head -n 1
}

# seconds_since EPOCHREALTIME: whole seconds gone by, rounded.
seconds_since() {
    local now=${EPOCHREALTIME/[.,]/}
    echo $(((now - ${1/[.,]/} + 500000) / 1000000))
}

# use_rust: finds a Rust of rustup's even where the shell that started us does not look for it (cron, CI, right after
# setup). Called once here, and again after scripts/setup has run.
use_rust() {
    local dir
    for dir in "$HOME/.cargo/bin" "${CARGO_HOME:-$HOME/.cargo}/bin"; do
        case :$PATH: in *:"$dir":*) continue ;; esac
        if [ -x "$dir/cargo" ]; then PATH=$dir:$PATH; fi
    done
}
use_rust
