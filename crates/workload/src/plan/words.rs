//! The vocabulary of texts and names; the first words are used most.

use crate::draws::Draws;

/// The words of messages.
const WORDS: &[&str] = &[
    "the",
    "to",
    "you",
    "and",
    "a",
    "I",
    "is",
    "it",
    "in",
    "of",
    "for",
    "on",
    "we",
    "at",
    "that",
    "be",
    "have",
    "this",
    "will",
    "are",
    "not",
    "can",
    "with",
    "do",
    "was",
    "but",
    "if",
    "me",
    "my",
    "your",
    "what",
    "so",
    "just",
    "when",
    "there",
    "all",
    "as",
    "from",
    "know",
    "see",
    "yes",
    "ok",
    "good",
    "time",
    "today",
    "how",
    "about",
    "tomorrow",
    "get",
    "up",
    "out",
    "come",
    "home",
    "thanks",
    "great",
    "sorry",
    "call",
    "back",
    "need",
    "they",
    "one",
    "our",
    "think",
    "going",
    "day",
    "would",
    "here",
    "by",
    "or",
    "still",
    "then",
    "some",
    "let",
    "work",
    "tonight",
    "now",
    "where",
    "please",
    "week",
    "send",
    "sent",
    "he",
    "she",
    "them",
    "been",
    "has",
    "should",
    "really",
    "much",
    "could",
    "after",
    "before",
    "next",
    "meeting",
    "morning",
    "late",
    "early",
    "bring",
    "book",
    "train",
    "station",
    "kitchen",
    "number",
    "address",
    "picture",
    "car",
    "bus",
    "dinner",
    "lunch",
    "coffee",
    "bread",
    "milk",
    "key",
    "door",
    "garden",
    "school",
    "office",
    "doctor",
    "birthday",
    "present",
    "party",
    "music",
    "film",
    "ticket",
    "hotel",
    "flight",
    "weather",
    "rain",
    "snow",
    "sunny",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "January",
    "March",
    "June",
    "October",
    "two",
    "three",
    "four",
    "seven",
    "ten",
    "half",
    "hour",
    "minute",
    "project",
    "report",
    "invoice",
    "price",
    "order",
    "parcel",
    "street",
    "bridge",
    "market",
    "river",
    "question",
    "answer",
    "problem",
    "idea",
    "plan",
    "version",
    "battery",
    "phone",
    "screen",
    "password",
    "account",
    "holiday",
    "beach",
    "mountain",
    "bicycle",
    "repair",
    "kettle",
    "window",
    "blanket",
    "cousin",
    "neighbour",
    "teacher",
    "football",
    "guitar",
    "recipe",
    "tomato",
    "cheese",
    "chocolate",
    "umbrella",
    "lantern",
    "quarter",
    "signature",
    "deadline",
    "workshop",
    "presentation",
    "unfortunately",
];

const GIVEN_NAMES: &[&str] = &[
    "Anna", "Ben", "Carla", "David", "Elif", "Farid", "Grace", "Hugo", "Ines", "Jonas", "Katya",
    "Liam", "Mina", "Noah", "Olga", "Pedro", "Qing", "Rosa", "Sami", "Tara", "Umut", "Vera", "Wei",
    "Xenia", "Yusuf", "Zoe", "Aiko", "Bruno", "Chidi", "Dana", "Emil", "Fatima",
];

const SURNAMES: &[&str] = &[
    "Adler", "Baker", "Costa", "Diaz", "Evans", "Fischer", "Garcia", "Haddad", "Ito", "Jansen",
    "Kim", "Lopez", "Meyer", "Novak", "Okafor", "Park", "Quinn", "Rossi", "Silva", "Tanaka",
    "Ueda", "Varga", "Wagner", "Xu", "Yilmaz", "Zhang", "Andersen", "Bianchi", "Cohen", "Dubois",
    "Eriksen", "Ferrari",
];

/// From `least` to `most` words with blanks between them.
pub(super) fn sentence(draws: &mut Draws, least: u32, most: u32) -> String {
    let count = least + draws.below(most.saturating_sub(least) + 1);
    let words: Vec<&str> = (0..count)
        .filter_map(|_| draws.pick(WORDS).copied())
        .collect();
    words.join(" ")
}

/// A given name and a surname.
pub(super) fn name(draws: &mut Draws) -> String {
    let given = draws.pick(GIVEN_NAMES).copied().unwrap_or_default();
    let surname = draws.pick(SURNAMES).copied().unwrap_or_default();
    format!("{given} {surname}")
}

/// An address as in mail.
pub(super) fn address(draws: &mut Draws) -> String {
    let name = name(draws).to_lowercase().replace(' ', ".");
    let host = draws
        .pick(&["example.com", "example.org", "mail.example.net"])
        .copied()
        .unwrap_or_default();
    format!("{name}@{host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_the_lengths_asked_for_and_are_of_words() {
        let mut draws = Draws::of(1, 2);
        for _ in 0..100 {
            let sentence = sentence(&mut draws, 3, 30);
            let words: Vec<_> = sentence.split(' ').collect();
            assert!((3..=30).contains(&words.len()), "{sentence}");
            assert!(words.iter().all(|word| WORDS.contains(word)));
            assert_eq!(name(&mut draws).split(' ').count(), 2);
            let address = address(&mut draws);
            assert!(address.contains(".") && address.contains("@"), "{address}");
        }
    }
}
