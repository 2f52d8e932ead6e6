//! A bounded set that evicts its oldest members.

use std::borrow::Borrow;
use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

/// A set of at most `CAPACITY` members; the oldest are evicted first.
#[derive(Debug)]
pub struct RecentSet<T, const CAPACITY: usize> {
    members: HashSet<T>,
    order: VecDeque<T>,
}

impl<T, const CAPACITY: usize> Default for RecentSet<T, CAPACITY> {
    fn default() -> Self {
        Self { members: HashSet::new(), order: VecDeque::new() }
    }
}

impl<T: Clone + Eq + Hash, const CAPACITY: usize> RecentSet<T, CAPACITY> {
    /// Adds a member; returns whether it was new.
    pub fn insert(&mut self, member: T) -> bool {
        if !self.members.insert(member.clone()) {
            return false;
        }
        self.order.push_back(member);
        if self.order.len() > CAPACITY
            && let Some(oldest) = self.order.pop_front()
        {
            self.members.remove(&oldest);
        }
        true
    }

    /// Removes a member. Its slot in the order stays until it is evicted.
    pub fn remove(&mut self, member: &T) {
        self.members.remove(member);
    }

    /// Whether it is a member.
    pub fn contains<Q: ?Sized + Eq + Hash>(&self, member: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.members.contains(member)
    }

    /// The members that were not evicted, latest first; removed ones included.
    pub fn latest(&self) -> impl Iterator<Item = &T> {
        self.order.iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_members_are_evicted() {
        let mut set = RecentSet::<u32, 3>::default();
        assert!(set.insert(1) && !set.insert(1));
        assert!((2..=4).all(|member| set.insert(member)));
        assert!(set.latest().eq(&[4, 3, 2]) && !set.contains(&1));
        set.remove(&3);
        assert!(!set.contains(&3) && set.contains(&2));
    }
}
