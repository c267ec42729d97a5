//! [`Shape::stable_for_ids`]: a shape that stays the same from day to day, so that a day's blob
//! differs from the one before in few bits.

use super::Shape;
use crate::error::Error;
use crate::filter::Layout;

/// A new stable shape has this many percent more units than are needed, so that it also fits the
/// next days.
const HEADROOM_PERCENT: u64 = 3;
/// A shape with more than this many percent of the units that are needed is not kept.
const MAX_PERCENT: u128 = 110;
/// A new stable shape has a number of units with at most this many leading bits.
const LEADING_BITS: u32 = 7;

impl Shape {
    /// Keeps `base`, the shape of the blob before, if it still fits `n_ids` at `fpp`; otherwise
    /// makes a new shape with some headroom. Returns the shape, and whether it is `base`. A shape
    /// fits if it is not smaller than [`Shape::for_ids`], at most a tenth larger, and has no higher
    /// fpp.
    ///
    /// Cost: up to a tenth more memory than [`Shape::for_ids`], usually 3 %.
    ///
    /// ```
    /// use bloomsday_common::filter::{Layout, Shape};
    ///
    /// let (monday, carried) = Shape::stable_for_ids(Layout::Blocked, 300_000_000, 0.03, None)?;
    /// assert!(!carried);
    /// let (tuesday, carried) =
    ///     Shape::stable_for_ids(Layout::Blocked, 301_000_000, 0.03, Some(monday))?;
    /// assert!(carried && tuesday == monday);
    /// # Ok::<(), bloomsday_common::error::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Shape::for_ids`].
    pub fn stable_for_ids(
        layout: Layout,
        n_ids: u64,
        fpp: f64,
        base: Option<Shape>,
    ) -> Result<(Shape, bool), Error> {
        let need = Shape::for_ids(layout, n_ids, fpp)?;
        if let Some(base) = base.filter(|base| base.fits(need, n_ids)) {
            return Ok((base, true));
        }
        let wanted = need.units().saturating_mul(100 + HEADROOM_PERCENT).div_ceil(100);
        let step = 1 << (wanted.ilog2() + 1).saturating_sub(LEADING_BITS);
        // The largest filters have no headroom.
        let units = wanted.checked_next_multiple_of(step).unwrap_or(wanted);
        Ok((Shape::new(layout, units, need.probes()).unwrap_or(need), false))
    }

    fn fits(self, need: Shape, n_ids: u64) -> bool {
        let (units, needed) = (u128::from(self.units()), u128::from(need.units()));
        self.layout() == need.layout()
            && (needed..=needed * MAX_PERCENT / 100).contains(&units)
            && self.expected_fpp(n_ids) <= need.expected_fpp(n_ids)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn layout(guava: bool) -> Layout {
        if guava { Layout::Guava } else { Layout::Blocked }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn a_stable_shape_is_never_worse_nor_much_larger_than_needed(
            n in 1u64..3_000_000_000,
            before in 1u64..3_000_000_000,
            near in any::<bool>(),
            exponent in 1f64..7.0,
            guava in any::<bool>(),
        ) {
            let (layout, fpp) = (layout(guava), f64::powf(10.0, -exponent) * 4.0);
            // Two days of similar size, or any two.
            let before = if near { n + before % (n / 8 + 1) } else { before };
            let (base, _) = Shape::stable_for_ids(layout, before, fpp, None).unwrap();
            let (shape, carried) = Shape::stable_for_ids(layout, n, fpp, Some(base)).unwrap();
            let need = Shape::for_ids(layout, n, fpp).unwrap();
            prop_assert!(shape.units() >= need.units());
            let most = need.units() as f64 * 1.1 + 1.0;
            prop_assert!(shape.units() as f64 <= most, "{} of {}", shape.units(), need.units());
            prop_assert!(shape.expected_fpp(n) <= need.expected_fpp(n) * (1.0 + 1e-9));
            prop_assert_eq!(carried, carried && shape == base);
            // The same day again: the same shape, whether its own blob is still there or not.
            let again = Shape::stable_for_ids(layout, n, fpp, Some(shape)).unwrap();
            prop_assert_eq!(again.0, shape);
        }
    }

    #[test]
    fn a_shape_lasts_about_a_month_at_a_thousandth_of_growth_a_day() {
        let (mut ids, mut base, mut changes) = (300e6, None, 0);
        for _ in 0..365 {
            let (shape, carried) =
                Shape::stable_for_ids(Layout::Blocked, ids as u64, 0.03, base).unwrap();
            changes += u32::from(!carried);
            base = Some(shape);
            ids *= 1.001;
        }
        assert!((8..=13).contains(&changes), "{changes} shapes in a year");
    }

    #[test]
    fn a_filter_that_shrinks_gets_a_smaller_shape_in_the_end() {
        let (base, _) = Shape::stable_for_ids(Layout::Blocked, 1_000_000, 0.03, None).unwrap();
        let of = |ids| Shape::stable_for_ids(Layout::Blocked, ids, 0.03, Some(base)).unwrap();
        assert_eq!(of(960_000), (base, true));
        assert!(!of(900_000).1 && !of(1_100_000).1);
        let guava = Shape::stable_for_ids(Layout::Guava, 1_000_000, 0.03, Some(base)).unwrap();
        assert!(!guava.1, "of another layout");
    }
}
