//! Opens a store by its address: which backend a URL or path means, with which settings.
//!
//! Only this file reads credentials from the environment. No message contains them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreScheme};
use url::Url;

use super::Store;
use super::local::real_path;
use super::objects::Objects;
use crate::error::Error;
use crate::redact::{redact_url, redact_urls, url_without_secrets};

impl Store {
    /// Opens the store at a URL or local path. Nothing is read or written yet.
    ///
    /// Cloud credentials and settings come from `AWS_*`, `AZURE_*` and `GOOGLE_*` in the
    /// environment.
    ///
    /// # Errors
    /// [`Error::StoreUrl`] for an invalid address, or a kind of store that was not compiled in;
    /// [`Error::NoStore`] for a local folder that does not exist.
    pub fn open(address: &str) -> Result<Store, Error> {
        open_store(address, IfMissing::Refuse, Retries::FEW)
    }

    /// Opens a store that was there before: as [`Store::open`], but a local folder may be missing
    /// for now, as one on a disk that is not mounted yet.
    ///
    /// ```
    /// use bloomsday_common::store::Store;
    ///
    /// let disk = tempfile::tempdir()?;
    /// let folder = disk.path().join("ads");
    /// let store = Store::open_unmounted(folder.to_str().unwrap())?;
    /// assert!(!folder.exists());
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// std::fs::create_dir_all(folder.join("rt"))?;
    /// std::fs::write(folder.join("rt/store.json"), "{}")?;
    /// assert_eq!(store.filters().await?, ["rt".parse()?]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::open`], except [`Error::NoStore`].
    pub fn open_unmounted(address: &str) -> Result<Store, Error> {
        open_store(address, IfMissing::Wait, Retries::FEW)
    }

    /// Opens a store for a build: as [`Store::open`], but makes a local folder that does not exist,
    /// and over a network a failed call is retried for half a minute, not for a second.
    ///
    /// ```
    /// use bloomsday_common::store::Store;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let store = Store::create(folder.path().join("ads").to_str().unwrap())?;
    /// assert!(folder.path().join("ads").is_dir());
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// assert!(store.filters().await?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::open`], and [`Error::File`] when the folder cannot be made.
    pub fn create(address: &str) -> Result<Store, Error> {
        open_store(address, IfMissing::Make, Retries::MANY)
    }

    /// Opens a store for a build that writes nothing, perhaps the first one: as [`Store::create`],
    /// but a local folder that does not exist reads as an empty store.
    ///
    /// # Errors
    /// As [`Store::open`], except [`Error::NoStore`].
    pub fn preview(address: &str) -> Result<Store, Error> {
        match open_store(address, IfMissing::Refuse, Retries::MANY) {
            Err(Error::NoStore { path }) => {
                Ok(Store::over(Arc::new(object_store::memory::InMemory::new()), &path))
            }
            opened => opened,
        }
    }
}

/// The target of the log lines that say that a call of a store is retried, at the level `info`.
pub const RETRY_LOG: &str = "object_store::client::retry";

/// How a failed call of a store is retried over a network before it is an error.
#[derive(Clone, Copy)]
#[cfg_attr(
    not(any(feature = "aws", feature = "azure", feature = "gcp", feature = "http-store")),
    expect(dead_code, reason = "only clients of HTTP have a pause that grows")
)]
struct Retries {
    max: usize,
    /// The most by which a pause is longer than the one before.
    growth: f64,
}

impl Retries {
    /// For a second: somebody waits for the answer, or the caller polls again anyway.
    const FEW: Retries = Retries { max: 4, growth: 2.0 };
    /// For half a minute: a build does not lose its work to a store that restarts, or that asks for
    /// fewer requests.
    const MANY: Retries = Retries { max: 12, growth: 4.0 };
}

/// Where an address leads: a backend, and a place in it.
#[derive(Clone)]
pub struct Location {
    /// The backend.
    pub objects: Arc<dyn ObjectStore>,
    /// The place in it; empty for its root.
    pub path: Path,
    /// The address for messages: without user, password or query.
    pub name: String,
    /// The local folder at which `objects` begins, for local files.
    pub folder: Option<PathBuf>,
    /// Whether it is a plain HTTP server, which can only return files.
    pub read_only: bool,
}

/// The backend is left out: it knows credentials.
impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Location { name, path, .. } = self;
        f.debug_struct("Location").field("name", name).field("path", path).finish_non_exhaustive()
    }
}

/// What is done about a local folder that does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfMissing {
    Refuse,
    Make,
    /// It may come later.
    Wait,
}

fn open_store(address: &str, if_missing: IfMissing, retries: Retries) -> Result<Store, Error> {
    let Some(folder) = local_path(address)? else {
        let location = locate(address, retries)?;
        let name = location.name.trim_end_matches('/');
        let objects = Objects::new(location.objects, location.path, name, location.read_only)
            .with_uncached(uncached(address)?);
        return Ok(Store::of(objects, vec![name.to_owned()]));
    };
    let display = folder.display().to_string();
    let failed = |doing, source| Error::File { doing, path: display.clone(), source };
    if folder.is_file() {
        return Err(bad_address(address, "it is no folder"));
    }
    if if_missing == IfMissing::Make {
        std::fs::create_dir_all(&folder).map_err(|source| failed("make the folder", source))?;
    }
    let (backend, root, real) = if folder.is_dir() {
        let real = folder.canonicalize().map_err(|source| failed("open the folder", source))?;
        (local(&real, &display)?, Path::default(), real)
    } else if if_missing == IfMissing::Wait {
        let real = real_path(&folder).map_err(|why| bad_address(address, why))?;
        let root = Path::from_absolute_path(&real).map_err(|e| bad_address(address, e))?;
        (local(std::path::Path::new("/"), &display)?, root, real)
    } else {
        return Err(Error::NoStore { path: display });
    };
    // People name the same folder by the path that they typed, by its real path and by its URL.
    let mut names = vec![real.display().to_string()];
    names.extend(Url::from_directory_path(&real).map(String::from).ok());
    names.push(display);
    let objects = Objects::new(backend, root, &names[0], false);
    Ok(Store::local(objects, names, real))
}

/// Opens the input of a build: a local path or a URL, of a folder or of a single object.
///
/// A local path need not exist. Over a network a failed call is retried for half a minute.
///
/// # Errors
/// [`Error::StoreUrl`] for an invalid address, or a kind of store that was not compiled in.
pub fn open_objects(address: &str) -> Result<Location, Error> {
    locate(address, Retries::MANY)
}

fn locate(address: &str, retries: Retries) -> Result<Location, Error> {
    if let Some(path) = local_path(address)? {
        // What exists is named by its real path, so that `..` and links mean what the shell means.
        let real = path.canonicalize().or_else(|_| std::path::absolute(&path));
        let absolute = real.map_err(|e| bad_address(address, e))?;
        let path = Path::from_absolute_path(&absolute).map_err(|e| bad_address(address, e))?;
        let root = PathBuf::from("/");
        let objects = local(&root, address)?;
        let name = redact_url(address);
        return Ok(Location { objects, path, name, folder: Some(root), read_only: false });
    }
    let url = Url::parse(address).map_err(|e| bad_address(address, e))?;
    if url.scheme() == "hdfs" {
        let path = Path::from_url_path(url.path())
            .map_err(|e| bad_address(&url_without_secrets(&url), e))?;
        let objects = hdfs(&url, retries)?;
        return Ok(Location {
            objects,
            path,
            name: url_without_secrets(&url),
            folder: None,
            read_only: false,
        });
    }
    let (scheme, path) = ObjectStoreScheme::parse(&url).map_err(|_| {
        let why = match url.host_str() {
            None => "the name of the bucket or server is missing after ://",
            Some(_) => "a URL begins with s3://, az://, gs://, hdfs://, https:// or the like",
        };
        bad_address(&url_without_secrets(&url), why)
    })?;
    let objects = remote(&scheme, &url, retries)?;
    let read_only = matches!(scheme, ObjectStoreScheme::Http);
    Ok(Location { objects, path, name: url_without_secrets(&url), folder: None, read_only })
}

/// A client of a plain HTTP server whose requests go past caches on the way; `None` for other
/// stores, which nobody caches.
fn uncached(address: &str) -> Result<Option<Arc<dyn ObjectStore>>, Error> {
    #[cfg(feature = "http-store")]
    if let Some(url) = Url::parse(address).ok().filter(|url| url.scheme().starts_with("http"))
        && let Ok((ObjectStoreScheme::Http, _)) = ObjectStoreScheme::parse(&url)
    {
        return http(&url, Some("no-cache"), Retries::FEW).map(Some);
    }
    let _ = address;
    Ok(None)
}

/// The path, if the address is a path or a `file:` URL.
fn local_path(address: &str) -> Result<Option<PathBuf>, Error> {
    if address.is_empty() {
        return Err(bad_address(address, "it is empty"));
    }
    if !address.contains("://") {
        // What is left of a URL that somebody took for a path.
        if let Some((scheme, rest)) = address.split_once(':')
            && (rest.is_empty() || rest.starts_with('/'))
            && scheme.len() > 1
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        {
            // The rest of it may be a password.
            let why = "a URL has two slashes after the colon; a folder of this name is ./NAME";
            let dots = if rest.is_empty() { "" } else { "/…" };
            return Err(bad_address(&format!("{scheme}:{dots}"), why));
        }
        return Ok(Some(PathBuf::from(address)));
    }
    if !address.starts_with("file://") {
        return Ok(None);
    }
    let url = Url::parse(address).map_err(|e| bad_address(address, e))?;
    let path =
        url.to_file_path().map_err(|()| bad_address(address, "a file URL is file:///PATH"))?;
    Ok(Some(path))
}

fn local(root: &std::path::Path, address: &str) -> Result<Arc<dyn ObjectStore>, Error> {
    let files = LocalFileSystem::new_with_prefix(root).map_err(|e| bad_address(address, e))?;
    // Off by default, but a blob must be on the disk before a pointer names it.
    Ok(Arc::new(files.with_fsync(true)))
}

#[cfg(any(feature = "aws", feature = "azure", feature = "gcp", feature = "http-store"))]
impl From<Retries> for object_store::RetryConfig {
    fn from(retries: Retries) -> object_store::RetryConfig {
        use std::time::Duration;
        object_store::RetryConfig {
            backoff: object_store::BackoffConfig {
                init_backoff: Duration::from_millis(100),
                max_backoff: Duration::from_secs(5),
                base: retries.growth,
            },
            max_retries: retries.max,
            // A store that does not answer at all is reported after two tries.
            retry_timeout: Duration::from_secs(60),
        }
    }
}

fn remote(
    scheme: &ObjectStoreScheme,
    url: &Url,
    #[cfg_attr(
        not(any(feature = "aws", feature = "azure", feature = "gcp", feature = "http-store")),
        expect(unused_variables, reason = "it has no client")
    )]
    retries: Retries,
) -> Result<Arc<dyn ObjectStore>, Error> {
    match scheme {
        #[cfg(feature = "aws")]
        ObjectStoreScheme::AmazonS3 => {
            let builder = object_store::aws::AmazonS3Builder::new().with_url(url.as_str());
            let builder = environment("AWS_")
                .fold(builder, |builder, (key, value)| builder.with_config(key, value));
            let store = builder.with_retry(retries.into()).build();
            Ok(Arc::new(store.map_err(|e| bad_address(&url_without_secrets(url), e))?))
        }
        #[cfg(feature = "gcp")]
        ObjectStoreScheme::GoogleCloudStorage => {
            let builder =
                object_store::gcp::GoogleCloudStorageBuilder::new().with_url(url.as_str());
            let builder = environment("GOOGLE_")
                .fold(builder, |builder, (key, value)| builder.with_config(key, value));
            let store = builder.with_retry(retries.into()).build();
            Ok(Arc::new(store.map_err(|e| bad_address(&url_without_secrets(url), e))?))
        }
        #[cfg(feature = "azure")]
        ObjectStoreScheme::MicrosoftAzure => {
            let builder = object_store::azure::MicrosoftAzureBuilder::new().with_url(url.as_str());
            let builder = environment("AZURE_")
                .fold(builder, |builder, (key, value)| builder.with_config(key, value));
            let store = builder.with_retry(retries.into()).build();
            Ok(Arc::new(store.map_err(|e| bad_address(&url_without_secrets(url), e))?))
        }
        #[cfg(feature = "http-store")]
        ObjectStoreScheme::Http => http(url, None, retries),
        other => {
            let why = format!(
                "{other:?} is not compiled in: use a local path, or build with the feature \
                 `aws`, `azure`, `gcp` or `http-store`"
            );
            Err(bad_address(&url_without_secrets(url), why))
        }
    }
}

/// A plain HTTP server. `cache_control` is a header of every request.
#[cfg(feature = "http-store")]
fn http(
    url: &Url,
    cache_control: Option<&'static str>,
    retries: Retries,
) -> Result<Arc<dyn ObjectStore>, Error> {
    // The HTTP client writes complete addresses into its traces.
    if url.password().is_some() || !url.username().is_empty() || url.query().is_some() {
        let why = "a user, a password or a query in an HTTP address would appear in logs: \
                   serve the blobs without, inside a network that may read them";
        return Err(bad_address(&url_without_secrets(url), why));
    }
    let mut base = url.clone();
    base.set_path("/");
    // The address says http:// on purpose; by default the client accepts only https://.
    let mut options = object_store::ClientOptions::new().with_allow_http(true);
    if let Some(value) = cache_control {
        let mut headers = object_store::HeaderMap::new();
        headers.insert("cache-control", object_store::HeaderValue::from_static(value));
        options = options.with_default_headers(headers);
    }
    let builder = object_store::http::HttpBuilder::new().with_url(base.as_str());
    let store = builder.with_client_options(options).with_retry(retries.into()).build();
    Ok(Arc::new(store.map_err(|e| bad_address(&url_without_secrets(url), e))?))
}

#[cfg(feature = "hdfs")]
fn hdfs(url: &Url, retries: Retries) -> Result<Arc<dyn ObjectStore>, Error> {
    if url.host_str().is_none_or(str::is_empty) {
        return Err(bad_address(
            &url_without_secrets(url),
            "write hdfs://NAMENODE:PORT/PATH or hdfs://NAMESERVICE/PATH",
        ));
    }
    let mut base = url.clone();
    base.set_path("");
    let opened = super::hdfs::open(base.as_str(), retries.max);
    opened.map_err(|e| bad_address(&url_without_secrets(url), e))
}

#[cfg(not(feature = "hdfs"))]
fn hdfs(url: &Url, _: Retries) -> Result<Arc<dyn ObjectStore>, Error> {
    Err(bad_address(
        &url_without_secrets(url),
        "HDFS is not compiled in: build with the feature `hdfs`",
    ))
}

/// Settings from the environment whose names begin with `prefix` and that the backend knows.
///
/// Not `std::env::vars()`: it panics on a variable that is not UTF-8.
#[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
fn environment<K: std::str::FromStr>(prefix: &'static str) -> impl Iterator<Item = (K, String)> {
    std::env::vars_os().filter_map(move |(key, value)| {
        let key = key.to_str()?.strip_prefix(prefix).and(key.to_str())?.to_ascii_lowercase();
        Some((key.parse().ok()?, value.to_str()?.to_owned()))
    })
}

/// The error for an address, without its password: neither in the address nor in a parser's
/// message, which often repeats the address.
fn bad_address(address: &str, why: impl ToString) -> Error {
    let url = redact_url(address);
    let why = redact_urls(&why.to_string().replace(address, &url));
    Error::StoreUrl { url, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_path_makes_of_a_url_is_no_folder_and_shows_no_password() {
        for url in ["s3:/ads/prod", "s3:", "abfs+x:/c", "https:/u:secret@h/x"] {
            let error = open_objects(url).map(|_| ()).unwrap_err().to_string();
            let scheme = url.split_once(':').unwrap().0;
            assert!(
                error.contains(&format!("`{scheme}:")) && error.contains("two slashes"),
                "{error}"
            );
            assert!(!error.contains("secret") && error.contains("./NAME"), "{error}");
        }
        for path in ["c:/blobs", "./s3:/ads", "a:b"] {
            assert!(local_path(path).unwrap().is_some(), "{path}");
        }
    }

    #[cfg(feature = "hdfs")]
    #[tokio::test]
    async fn an_address_on_hdfs_is_read_and_a_namenode_that_is_not_there_is_an_error() {
        let location = open_objects("hdfs://nobody:secret@127.0.0.1:1/ads/prod%20one/").unwrap();
        assert_eq!(location.path.as_ref(), "ads/prod one");
        assert_eq!(location.name, "hdfs://127.0.0.1:1/ads/prod%20one/");
        for wrong in ["hdfs:///ads", "hdfs://", "hdfs://no-such-name-service/ads"] {
            let error = open_objects(wrong).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("cannot be used"), "{error}");
        }
        let store = Store::open("hdfs://127.0.0.1:1/ads").unwrap();
        let error = store.filters().await.unwrap_err();
        assert!(error.to_string().contains("hdfs://127.0.0.1:1/ads"), "{error}");
        assert!(error.is_transient(), "{error}");
    }
}
