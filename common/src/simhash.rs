//! The simhash of a text: 64 bits of which similar texts have nearly all in common. Text to bits;
//! what is near to what is the business of who keeps them.
//!
//! # Tokens
//!
//! A text is split into tokens by these rules, and no others:
//!
//! - A character that is neither a letter nor a digit (Unicode's `Alphabetic` or `Numeric`) ends a
//!   token.
//! - Chinese and Japanese characters, and those of Thai, Lao, Khmer and Burmese, have no spaces
//!   between words: each two neighbours of them are a token, and one that has no neighbour is a
//!   token by itself.
//! - All other letters and digits that follow each other are one token, in lower case. Korean is
//!   written with spaces, so its words are tokens, too.
//!
//! Nothing else is removed or joined: no stop words, no stems, no HTML. What looks the same and is
//! written in two ways (an é in one or two characters) gives two tokens: normalise a text to NFC
//! before, if its sources differ.
//!
//! # Bits
//!
//! Each different token of the text is hashed by XXH3-64 with the seed of IDs ([`Xxh3`]). A bit of
//! the simhash is 1 if more of these hashes have a 1 there than a 0. Charikar 2002, "Similarity
//! estimation techniques from rounding algorithms"; Manku, Jain & Das Sarma 2007, "Detecting
//! near-duplicates for web crawling", which takes 64 bits and a distance of at most 3.
//!
//! How often a token occurs does not count: long texts have the frequent words of their language in
//! common, and by these alone two that have nothing to do with each other came within 3 bits. Nor
//! does the order of tokens count. Short texts are far apart after small changes.
//!
//! Rules and hash are frozen: a simhash that is kept can be compared with a later one.

use crate::hash::{IdHash, Xxh3};

/// The simhash of a text; `None` for one without a letter or digit, because all of these would be
/// alike.
///
/// Cost: one pass, and 8 bytes for each token.
///
/// ```
/// use bloomsday_common::simhash::{distance, simhash};
///
/// let news = "Leopold Bloom ate with relish the inner organs of beasts and fowls. \
///     He liked thick giblet soup, nutty gizzards, a stuffed roast heart, liverslices fried \
///     with crustcrumbs, fried hencods' roes.";
/// let copy = news.replace("relish the", "RELISH - the");
/// assert_eq!(simhash(news), simhash(&copy));
///
/// let other = simhash("Stately, plump Buck Mulligan came from the stairhead, bearing a bowl.");
/// assert!(distance(simhash(news).unwrap(), other.unwrap()) > 10);
/// assert_eq!(simhash("…"), None);
/// ```
pub fn simhash(text: &str) -> Option<u64> {
    let mut hashes = Vec::new();
    tokens(text, |token| hashes.push(Xxh3::of(token.as_bytes()).0));
    hashes.sort_unstable();
    hashes.dedup();
    let ones = |bit: usize| hashes.iter().filter(|hash| *hash >> bit & 1 == 1).count();
    let set = |bit: usize| u64::from(2 * ones(bit) > hashes.len()) << bit;
    (!hashes.is_empty()).then(|| (0..64).map(set).sum())
}

/// How many bits differ.
pub fn distance(a: u64, b: u64) -> u32 {
    (a ^ b).count_ones()
}

/// Visits the tokens of a text, in order.
fn tokens(text: &str, mut visit: impl FnMut(&str)) {
    let (mut word, mut pair) = (String::new(), String::new());
    // Whether `pair` is one character that was no part of a token yet.
    let mut is_single = false;
    for c in text.chars() {
        let is_letter = c.is_alphanumeric();
        let is_unspaced = is_letter && is_unspaced(c);
        if !word.is_empty() && (!is_letter || is_unspaced) {
            visit(&word);
            word.clear();
        }
        if !is_unspaced {
            if is_single {
                visit(&pair);
            }
            pair.clear();
            is_single = false;
            word.extend(c.to_lowercase().filter(|_| is_letter));
            continue;
        }
        pair.push(c);
        is_single = pair.len() == c.len_utf8();
        if !is_single {
            visit(&pair);
            let first = pair.chars().next().map_or(0, char::len_utf8);
            pair.drain(..first);
        }
    }
    if is_single || !word.is_empty() {
        visit(if is_single { &pair } else { &word });
    }
}

/// Whether a letter is of a script that is written without spaces between words.
fn is_unspaced(c: char) -> bool {
    // Most texts have none of them.
    c >= '\u{e00}'
        && matches!(c,
            // Thai and Lao; Burmese; Khmer.
            '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
            // Radicals, and 々〆〇.
            | '\u{2e80}'..='\u{2fdf}' | '\u{3005}'..='\u{3007}' | '\u{3021}'..='\u{3029}'
            // Hiragana, katakana, bopomofo.
            | '\u{3031}'..='\u{312f}' | '\u{31a0}'..='\u{31ff}' | '\u{ff66}'..='\u{ff9f}'
            // Han characters, in the order in which they came into Unicode.
            | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
            | '\u{1b000}'..='\u{1b16f}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hash::SplitMix64;

    fn split(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        tokens(text, |token| found.push(token.to_owned()));
        found
    }

    #[test]
    fn words_are_letters_and_digits_in_lower_case() {
        assert_eq!(split("The CAT's  3½ mice\n"), ["the", "cat", "s", "3½", "mice"]);
        assert_eq!(split("ÅNGSTRÖM ПРИВЕТ İ"), ["ångström", "привет", "i\u{307}"]);
        assert_eq!(split("서울의 봄"), ["서울의", "봄"]);
        assert_eq!(split(" …!"), Vec::<String>::new());
    }

    #[test]
    fn characters_of_scripts_without_spaces_are_tokens_by_twos() {
        assert_eq!(split("我爱北京。"), ["我爱", "爱北", "北京"]);
        assert_eq!(split("北"), ["北"]);
        assert_eq!(split("我 爱,北京"), ["我", "爱", "北京"]);
        assert_eq!(split("用Rust写的2个"), ["用", "rust", "写的", "2", "个"]);
        assert_eq!(split("東京タワー"), ["東京", "京タ", "タワ", "ワー"]);
        assert_eq!(split("𠀀𠀁a"), ["𠀀𠀁", "a"]);
    }

    /// The values of the first release: they are compared with those that users have kept.
    #[test]
    fn the_bits_are_frozen() {
        let of = |text: &str| format!("{:016x}", simhash(text).unwrap());
        // One token: its hash.
        assert_eq!(of("A"), "4c4079fb278f7850");
        assert_eq!(of("The quick brown fox jumps over the lazy dog"), "6dc0c8020c2a40ba");
        assert_eq!(of("敏捷的棕色狐狸跳过了懒狗"), "39f22928fcf751e9");
        assert_eq!(of("東京タワーへ行く"), "4f8a62e18969e92b");
    }

    /// Made-up words: the rarest of 5,000 come as often as the rare words of a language do.
    fn words(random: &mut SplitMix64, many: usize) -> Vec<String> {
        let word = |random: &mut SplitMix64| {
            let (a, b) = (random.draw() % 5_000 + 1, random.draw() % 5_000 + 1);
            format!("w{}", a * b / 5_000)
        };
        (0..many).map(|_| word(random)).collect()
    }

    #[test]
    fn a_changed_word_in_a_long_text_changes_few_bits_and_another_text_many() {
        let mut random = SplitMix64::new(7);
        let (mut near, mut nearest_other) = (0, 64);
        for _ in 0..200 {
            let text = words(&mut random, 1_000);
            let mut changed = text.clone();
            changed[(random.draw() % 1_000) as usize] = "other".to_owned();
            let hash = |words: &[String]| simhash(&words.join(" ")).unwrap();
            near += u32::from(distance(hash(&text), hash(&changed)) <= 3);
            let other = hash(&words(&mut random, 1_000));
            nearest_other = nearest_other.min(distance(hash(&text), other));
        }
        assert!(near >= 170, "{near} of 200 texts are near to themselves with another word");
        assert!(nearest_other > 8, "two different texts have a distance of {nearest_other}");
    }

    proptest! {
        #[test]
        fn case_and_what_stands_between_words_do_not_matter(
            words in prop::collection::vec("[a-z0-9]{1,9}", 1..40),
        ) {
            let plain = simhash(&words.join(" "));
            prop_assert_eq!(simhash(&words.join(" — ").to_uppercase()), plain);
            prop_assert!(plain.is_some());
        }

        #[test]
        fn any_text_has_a_simhash_if_it_has_a_letter_or_digit(text in any::<String>()) {
            let has_letter = text.chars().any(char::is_alphanumeric);
            prop_assert_eq!(simhash(&text).is_some(), has_letter);
        }
    }
}
