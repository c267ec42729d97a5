//! A store as people with other tools see it: past the program.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bloomsday_tests::backend::{Backend, s3_server};

/// Moto requires credentials, and accepts any.
const WHO: &str = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request";

/// Bucket and prefix of an S3 store.
pub(crate) fn bucket(backend: &Backend) -> Option<(&str, &str)> {
    backend.store.strip_prefix("s3://")?.split_once('/')
}

/// Every object of a store below a folder, past the program: key and bytes, locks aside.
pub(crate) fn objects(backend: &Backend, below: &str) -> BTreeMap<String, Vec<u8>> {
    let Some((bucket, prefix)) = bucket(backend) else {
        let folder = Path::new(&backend.store).join(below);
        let files = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
        let named = files.map(|file| {
            (file.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&file).unwrap())
        });
        return named.filter(|(name, _)| !name.starts_with('.')).collect();
    };
    let base = format!("{}/{bucket}", s3_server());
    let get = |path: String| {
        let url = format!("{base}{path}");
        let mut answer = ureq::get(url).header("Authorization", WHO).call().unwrap();
        answer.body_mut().read_to_vec().unwrap()
    };
    let list = String::from_utf8(get(format!("?list-type=2&prefix={prefix}/{below}"))).unwrap();
    let keys = list.split("<Key>").skip(1).map(|rest| rest.split('<').next().unwrap());
    keys.map(|key| (key.rsplit('/').next().unwrap().to_owned(), get(format!("/{key}")))).collect()
}

/// Writes an object as a person would, past the program.
pub(crate) fn put(backend: &Backend, key: &str, bytes: &[u8]) {
    match bucket(backend) {
        None => fs::write(Path::new(&backend.store).join(key), bytes).unwrap(),
        Some((bucket, prefix)) => {
            let url = format!("{}/{bucket}/{prefix}/{key}", s3_server());
            ureq::put(url).header("Authorization", WHO).send(bytes).unwrap();
        }
    }
}
