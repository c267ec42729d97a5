//! [`Scram`]: proves to a broker that this client knows a password, without sending it, and checks that the
//! broker knows it, too. RFC 5802 and RFC 7677, without channel binding.

use std::num::NonZeroU32;

use aws_lc_rs::{digest, hmac, pbkdf2, rand};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// How many rounds a broker may ask for: Kafka takes 4,096 to 16,384.
const MAX_ROUNDS: u32 = 1_000_000;
/// The header of a client that has no channel binding.
const NO_BINDING: &str = "n,,";
/// How many random bytes a nonce is made of.
const NONCE_BYTES: usize = 18;

/// The hash function of a mechanism.
#[derive(Clone, Copy)]
pub(super) struct Hash {
    digest: &'static digest::Algorithm,
    hmac: hmac::Algorithm,
    pbkdf2: pbkdf2::Algorithm,
}

impl Hash {
    pub(super) fn sha256() -> Hash {
        Hash {
            digest: &digest::SHA256,
            hmac: hmac::HMAC_SHA256,
            pbkdf2: pbkdf2::PBKDF2_HMAC_SHA256,
        }
    }

    pub(super) fn sha512() -> Hash {
        Hash {
            digest: &digest::SHA512,
            hmac: hmac::HMAC_SHA512,
            pbkdf2: pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }
}

/// A login that has begun.
pub(super) struct Scram {
    hash: Hash,
    password: String,
    nonce: String,
    /// The first message, without its header.
    first: String,
}

/// A login that waits for the broker's proof.
pub(super) struct Proved {
    key: hmac::Key,
    said: String,
}

impl Scram {
    /// A login, with a nonce of its own.
    pub(super) fn begin(hash: Hash, user: &str, password: &str) -> Result<Scram, String> {
        let mut bytes = [0; NONCE_BYTES];
        rand::fill(&mut bytes).map_err(|_| "the system gives no random bytes")?;
        Ok(Scram::with(hash, user, password, STANDARD.encode(bytes)))
    }

    fn with(hash: Hash, user: &str, password: &str, nonce: String) -> Scram {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        let first = format!("n={user},r={nonce}");
        Scram { hash, password: password.to_owned(), nonce, first }
    }

    /// What is sent first.
    pub(super) fn first(&self) -> Vec<u8> {
        format!("{NO_BINDING}{}", self.first).into_bytes()
    }

    /// The answer to the broker's first message.
    pub(super) fn prove(self, challenge: &[u8]) -> Result<(Vec<u8>, Proved), String> {
        let wrong = || "its first message of SCRAM cannot be read".to_owned();
        let challenge = std::str::from_utf8(challenge).map_err(|_| wrong())?;
        let mut parts = challenge.split(',');
        let mut part = |name: &str| parts.next().and_then(|part| part.strip_prefix(name));
        let (Some(nonce), Some(salt), Some(rounds)) = (part("r="), part("s="), part("i=")) else {
            return Err(wrong());
        };
        let rounds: u32 = rounds.parse().map_err(|_| wrong())?;
        let rounds = NonZeroU32::new(rounds).filter(|rounds| rounds.get() <= MAX_ROUNDS);
        let rounds = rounds.ok_or_else(|| format!("it asks for more than {MAX_ROUNDS} rounds"))?;
        let salt = STANDARD.decode(salt).map_err(|_| wrong())?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err("its nonce is not made from that of this client".into());
        }
        let Hash { digest, hmac, pbkdf2 } = self.hash;
        let mut salted = vec![0; digest.output_len()];
        pbkdf2::derive(pbkdf2, rounds, &salt, self.password.as_bytes(), &mut salted);
        let sign = |key: &[u8], text: &[u8]| hmac::sign(&hmac::Key::new(hmac, key), text);
        let last = format!("c={},r={nonce}", STANDARD.encode(NO_BINDING));
        let said = format!("{},{challenge},{last}", self.first);
        let client = sign(&salted, b"Client Key");
        let stored = digest::digest(digest, client.as_ref());
        let signature = sign(stored.as_ref(), said.as_bytes());
        let proof: Vec<u8> =
            client.as_ref().iter().zip(signature.as_ref()).map(|(a, b)| a ^ b).collect();
        let answer = format!("{last},p={}", STANDARD.encode(proof));
        let server = sign(&salted, b"Server Key");
        let key = hmac::Key::new(hmac, server.as_ref());
        Ok((answer.into_bytes(), Proved { key, said }))
    }
}

impl Proved {
    /// Checks the broker's own proof.
    pub(super) fn check(&self, last: &[u8]) -> Result<(), String> {
        let last = std::str::from_utf8(last).unwrap_or_default();
        if let Some(error) = last.strip_prefix("e=") {
            return Err(error.to_owned());
        }
        let proof = last.strip_prefix("v=").and_then(|rest| rest.split(',').next());
        let proof = proof.and_then(|proof| STANDARD.decode(proof).ok()).unwrap_or_default();
        hmac::verify(&self.key, self.said.as_bytes(), &proof)
            .map_err(|_| "it does not know the password itself: is it the right broker?".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677, section 3.
    #[test]
    fn a_login_says_what_the_rfc_says() {
        let nonce = "rOprNGfwEbeRWgbNEkqO".to_owned();
        let scram = Scram::with(Hash::sha256(), "user", "pencil", nonce);
        assert_eq!(scram.first(), b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let challenge = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                         s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let (answer, proved) = scram.prove(challenge.as_bytes()).unwrap();
        let expected = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(String::from_utf8(answer).unwrap(), expected);
        proved.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=").unwrap();
        assert!(proved.check(b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=").is_err());
        assert!(proved.check(b"").is_err());
        assert_eq!(proved.check(b"e=invalid-proof").unwrap_err(), "invalid-proof");
    }

    #[test]
    fn a_challenge_that_is_not_for_this_client_is_refused() {
        for challenge in [
            "",
            "r=other,s=AAAA,i=4096",
            "r=mine,s=AAAA,i=4096",
            "r=mine1,s=?,i=4096",
            "r=mine1,s=AAAA,i=0",
            "r=mine1,s=AAAA,i=1000001",
        ] {
            let scram = Scram::with(Hash::sha512(), "a=b,c", "x", "mine".into());
            assert_eq!(scram.first(), b"n,,n=a=3Db=2Cc,r=mine");
            assert!(scram.prove(challenge.as_bytes()).is_err(), "{challenge}");
        }
    }
}
