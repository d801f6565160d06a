//! Who comes first: by quality, and within a quality by weighted fair turns that respect deadlines.
//!
//! Each route has a virtual time that a served frame moves by 1 / weight. Of the frames that wait, those whose route is not
//! ahead of the others by more than `AHEAD` frames are eligible, and of those the one with the earliest deadline is next;
//! frames without a deadline come after those with one, in the order of virtual time. So deadlines decide while there is
//! enough for all, and weights when there is not: nobody gets ahead by more than `AHEAD` frames, and nobody starves.
//! A route that had nothing waiting brings no credit with it, and one that lost no frame since it was served is owed nothing:
//! cameras that are all kept up with, at whatever rates, are never told to wait for one another's turn.

use std::time::Instant;

use super::Quality;

/// So many frames of weight 1 a route may be served ahead of its turn for the sake of its deadlines.
const AHEAD: u64 = 4;
/// A frame of weight 1 in virtual time. Divided by the weight it stays exact to a millionth.
const FRAME: u64 = 1 << 20;

/// A frame's place among all that wait; the least is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Quality first.
    pub quality: Quality,
    turn: Turn,
    /// Virtual time.
    start: u64,
    /// When the route began to wait.
    pub since: Instant,
    /// The deadline.
    pub deadline: Option<Instant>,
}

/// What decides within a quality before virtual time does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// The earliest deadline.
    By(Instant),
    /// Nothing.
    Any,
    /// Its route has had more than its share for the sake of its deadlines.
    Ahead,
}

/// A route's account.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    quality: Quality,
    /// What a frame costs.
    stride: u64,
    start: u64,
    finish: u64,
    /// Where it starts if it has lost a frame since it was served, and whether it has.
    owed: u64,
    lost: bool,
}

/// The virtual time of each quality.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turns {
    now: [u64; Quality::ALL.len()],
    /// The greatest virtual time at which a route was served.
    front: [u64; Quality::ALL.len()],
    /// The least virtual time of those that wait or were just served.
    least: [u64; Quality::ALL.len()],
}

impl Account {
    /// A new account; `weight` is at least 1.
    #[must_use]
    pub fn new(quality: Quality, weight: u32) -> Self {
        Self { quality, stride: FRAME / u64::from(weight.max(1)), start: 0, finish: 0, owed: 0, lost: false }
    }

    /// The route has lost a frame.
    pub fn lose(&mut self) {
        self.lost = true;
        self.start = self.owed;
    }
}

impl Turns {
    /// The route begins to wait.
    pub fn wait(&self, account: &mut Account) {
        let quality = account.quality as usize;
        account.owed = account.finish.max(self.now[quality]);
        account.start = if account.lost { account.owed } else { account.finish.max(self.front[quality]) };
    }

    /// Begins a look at all that wait: [`Turns::see`] each, then [`Turns::rank`] them.
    pub fn look(&mut self) {
        self.least = [u64::MAX; Quality::ALL.len()];
    }

    /// Sees a route that waits.
    pub fn see(&mut self, account: &Account) {
        let least = &mut self.least[account.quality as usize];
        *least = account.start.min(*least);
    }

    /// Sees a route that was just served. Its next frame will come, and what it is owed then is not forgotten meanwhile.
    pub fn see_served(&mut self, account: &Account) {
        let least = &mut self.least[account.quality as usize];
        *least = account.finish.min(*least);
    }

    /// The place of a route's frame.
    #[must_use]
    pub fn rank(&self, account: &Account, deadline: Option<Instant>, since: Instant) -> Rank {
        let least = self.least[account.quality as usize];
        let turn = match deadline {
            _ if account.start > least.saturating_add(AHEAD * FRAME) => Turn::Ahead,
            Some(deadline) => Turn::By(deadline),
            None => Turn::Any,
        };
        Rank { quality: account.quality, turn, start: account.start, since, deadline }
    }

    /// The route is served. Virtual time stands where the one that waits and had least stands, so that whoever is passed
    /// over for the sake of deadlines keeps what it is owed.
    pub fn serve(&mut self, account: &mut Account) {
        let least = self.least[account.quality as usize].min(account.start);
        let now = &mut self.now[account.quality as usize];
        *now = least.max(*now);
        let front = &mut self.front[account.quality as usize];
        *front = account.start.max(*front);
        account.finish = account.start + account.stride;
        account.lost = false;
    }

    /// The route's last frame was not run after all: it waits as if it had not been served.
    pub fn refund(&self, account: &mut Account) {
        account.finish = account.finish.saturating_sub(account.stride);
        account.owed = account.finish;
        account.lose();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Serves `turns` times whoever is first of routes that always wait; each has a weight and maybe a deadline after its
    /// arrival. Returns how often each was served.
    fn serve(routes: &[(Quality, u32, Option<Duration>)], turns: u32) -> Vec<u32> {
        let start = Instant::now();
        let mut fair = Turns::default();
        let mut accounts: Vec<_> =
            routes.iter().map(|(quality, weight, _)| Account::new(*quality, *weight)).collect();
        let (mut since, mut served) = (vec![start; routes.len()], vec![0; routes.len()]);
        for turn in 0..turns {
            let now = start + MS * turn;
            fair.look();
            accounts.iter().for_each(|account| fair.see(account));
            let rank = |route: &usize| {
                let deadline = routes[*route].2.map(|deadline| since[*route] + deadline);
                fair.rank(&accounts[*route], deadline, since[*route])
            };
            let next = (0..routes.len()).min_by_key(rank).unwrap();
            fair.serve(&mut accounts[next]);
            fair.wait(&mut accounts[next]);
            // There are more frames than turns.
            accounts.iter_mut().for_each(Account::lose);
            (since[next], served[next]) = (now, served[next] + 1);
        }
        served
    }

    #[test]
    fn equal_weights_take_turns_and_others_get_their_multiple() {
        let standard = |weight| (Quality::Standard, weight, None);
        assert_eq!(serve(&[standard(1); 4], 400), [100; 4]);
        assert_eq!(serve(&[standard(4), standard(1), standard(1)], 600), [400, 100, 100]);
    }

    #[test]
    fn a_better_quality_comes_first() {
        let routes =
            [Quality::BestEffort, Quality::Realtime, Quality::Standard].map(|quality| (quality, 1, None));
        assert_eq!(serve(&routes, 100), [0, 100, 0]);
    }

    #[test]
    fn short_deadlines_do_not_starve_long_ones_or_none() {
        let realtime = |deadline| (Quality::Realtime, 1, deadline);
        let served = serve(&[realtime(Some(5 * MS)), realtime(Some(5000 * MS)), realtime(None)], 3000);
        assert!(served.iter().all(|served| served.abs_diff(1000) <= 5), "{served:?}");
    }

    #[test]
    fn the_earliest_deadline_is_next_among_equals() {
        let (start, mut fair) = (Instant::now(), Turns::default());
        let account = Account::new(Quality::Realtime, 1);
        fair.look();
        fair.see(&account);
        let rank = |deadline: Option<u32>| fair.rank(&account, deadline.map(|ms| start + ms * MS), start);
        assert!(rank(Some(5)) < rank(Some(6)) && rank(Some(6)) < rank(None));
    }

    #[test]
    fn who_was_away_brings_no_credit() {
        let mut fair = Turns::default();
        let (mut busy, mut away) = (Account::new(Quality::Standard, 1), Account::new(Quality::Standard, 1));
        for _ in 0..1000 {
            fair.wait(&mut busy);
            fair.look();
            fair.see(&busy);
            fair.serve(&mut busy);
        }
        fair.wait(&mut away);
        fair.wait(&mut busy);
        assert!(busy.start - away.start <= FRAME);
    }
}
