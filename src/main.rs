//! The `gantry` binary. Everything is in the library; see [`gantry::cli`].

use gantry::memory::allocations::Counting;

/// Counts only where it is asked to: `gantry bench`.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> std::process::ExitCode {
    gantry::cli::main()
}
