//! Makes the checkout the working directory of unit tests, as for users; cargo starts them in the folder of their crate.

use std::path::Path;
use std::sync::Once;

/// Makes the checkout the working directory of this process. All tests of a process may call it: the directory is the same.
pub fn enter_checkout() {
    static ENTERED: Once = Once::new();
    ENTERED.call_once(|| {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        std::env::set_current_dir(&checkout).expect("the checkout exists");
    });
}
