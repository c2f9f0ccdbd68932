//! Which communicators of pairs live: those used last. Every round of pairs has one of its own where messages cannot go over that of all
//! ranks; kept, they would be as many as there are ranks, each with memory, threads and connections.

use super::members::Key;
use std::collections::VecDeque;

/// Of a case and of the one before, whose registered buffers are given back only when the next ones are taken.
const MOST: usize = 2;

/// Keys of communicators of pairs, the one used last at the back.
#[derive(Default)]
pub(super) struct RecentPairs(VecDeque<Key>);

impl RecentPairs {
    /// Notes a use, and returns the communicator that must go for it, if one must.
    pub fn use_one(&mut self, key: Key) -> Option<Key> {
        self.0.retain(|other| *other != key);
        self.0.push_back(key);
        if self.0.len() > MOST { self.0.pop_front() } else { None }
    }

    /// Forgets all, as none lives any more.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::members::Members;
    use super::*;

    #[test]
    fn the_one_that_was_used_longest_ago_goes_and_never_that_of_the_case_before() {
        let key = |number| (Members::Groups(number), None);
        let mut recent = RecentPairs::default();
        let gone: Vec<_> = [1, 2, 1, 3, 3, 2].map(|number| recent.use_one(key(number))).into();
        assert_eq!(gone, [None, None, None, Some(key(2)), None, Some(key(1))]);
        recent.clear();
        assert_eq!(recent.use_one(key(5)), None);
    }
}
