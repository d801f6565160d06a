//! The `gantry` binary. Everything is in the library; see [`gantry::cli`].

fn main() -> std::process::ExitCode {
    gantry::cli::main()
}
