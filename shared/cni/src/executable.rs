//! The `main` function of a plugin's executable.

/// The `main` of an executable that is one plugin, on an arena for its memory. The plugin's library must not choose the allocator:
/// tests and fuzz targets link it too.
///
/// ```ignore
/// cni::executable!(bridge::Bridge);
/// ```
#[macro_export]
macro_rules! executable {
    ($plugin:ty) => {
        #[global_allocator]
        static HEAP: $crate::heap::Arena = $crate::heap::Arena::new();

        fn main() -> std::process::ExitCode {
            $crate::main::<$plugin>()
        }
    };
}
