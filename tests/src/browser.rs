//! A real Chromium without a window, driven over WebDriver.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long the page may take to show something.
const DEADLINE: Duration = Duration::from_secs(60);
/// The name under which WebDriver hands out elements.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// How often chromedriver is started: it chooses a free port of IPv4, and ends if some other
/// program has the same one of IPv6.
const MAX_STARTS: u32 = 5;

/// A browser. A drop closes it.
pub struct Browser {
    driver: Child,
    session: String,
}

/// Starts chromedriver, and returns its port; `None` when it ends before it has one.
fn start_driver() -> Option<(Child, String)> {
    let mut driver = Command::new("chromedriver")
        .arg("--port=0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("chromedriver runs (tests/run.sh installs it)");
    let mut lines = BufReader::new(driver.stdout.take().expect("stdout is piped")).lines();
    let port = lines.by_ref().find_map(|line| {
        let line = line.expect("it writes text");
        let (_, port) = line.split_once("started successfully on port ")?;
        Some(port.trim_end_matches('.').to_owned())
    });
    let Some(port) = port else {
        let _ = driver.wait();
        return None;
    };
    std::thread::spawn(move || lines.for_each(drop));
    Some((driver, port))
}

impl Browser {
    /// Opens one, with a window of this size; `dark` is the colour scheme that the system prefers.
    pub fn open(width: u32, height: u32, dark: bool) -> Browser {
        let started = (0..MAX_STARTS).find_map(|_| start_driver());
        let (driver, port) = started.expect("chromedriver starts");
        let mut args = vec![
            "--headless=new".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            format!("--window-size={width},{height}"),
        ];
        if dark {
            args.push("--blink-settings=preferredColorScheme=0".to_owned());
        }
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": args },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let mut browser = Browser { driver, session: format!("http://127.0.0.1:{port}/session") };
        let session = browser.post("", &wanted);
        let id = session["sessionId"].as_str().expect("a session").to_owned();
        browser.session = format!("{}/{id}", browser.session);
        browser
    }

    /// Opens an address.
    pub fn go(&self, url: &str) {
        self.post("/url", &json!({ "url": url }));
    }

    /// Runs a script in the page. Returns its result.
    pub fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Everything a person can read on the page now.
    pub fn text(&self) -> String {
        let text = self.run("return document.body.innerText");
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the page says something.
    #[track_caller]
    pub fn until(&self, what: &str) -> String {
        let start = Instant::now();
        loop {
            let text = self.text();
            if text.contains(what) {
                return text;
            }
            assert!(start.elapsed() < DEADLINE, "waited in vain for `{what}`:\n{text}");
        }
    }

    /// Waits until a script returns a value.
    #[track_caller]
    pub fn run_until(&self, script: &str, value: &Value) {
        let start = Instant::now();
        loop {
            let returned = self.run(script);
            if returned == *value {
                return;
            }
            assert!(start.elapsed() < DEADLINE, "waited in vain for {value}, not {returned}");
        }
    }

    /// Types into the element that a CSS selector finds.
    pub fn type_into(&self, selector: &str, text: &str) {
        let path = format!("/element/{}/value", self.find(selector));
        self.post(&path, &json!({ "text": text }));
    }

    /// Clicks the element that a CSS selector finds.
    pub fn click(&self, selector: &str) {
        self.post(&format!("/element/{}/click", self.find(selector)), &json!({}));
    }

    /// Presses a key wherever the focus is.
    pub fn press(&self, key: &str) {
        let actions =
            json!([{ "type": "keyDown", "value": key }, { "type": "keyUp", "value": key }]);
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.post("/actions", &json!({ "actions": [keyboard] }));
    }

    /// What the page complained about to its console: blocked scripts and styles are there.
    pub fn complaints(&self) -> Vec<String> {
        let said = self.post("/se/log", &json!({ "type": "browser" }));
        let lines = said.as_array().cloned().unwrap_or_default();
        lines.iter().map(|line| line["message"].to_string()).collect()
    }

    /// Keeps a picture of the page, base64-encoded PNG, at `file`.
    pub fn picture(&self, file: &Path) {
        let picture = self.get("/screenshot");
        std::fs::write(file, picture.as_str().expect("base64")).expect("a file is written");
    }

    fn find(&self, selector: &str) -> String {
        let found = self.post("/element", &json!({ "using": "css selector", "value": selector }));
        found[ELEMENT].as_str().unwrap_or_else(|| panic!("no {selector}")).to_owned()
    }

    #[track_caller]
    fn post(&self, path: &str, body: &Value) -> Value {
        let url = format!("{}{path}", self.session);
        let request = ureq::post(&url).config().http_status_as_error(false).build();
        let request = request.header("content-type", "application/json");
        value(request.send(body.to_string()).unwrap_or_else(|e| panic!("{url}: {e}")))
    }

    fn get(&self, path: &str) -> Value {
        let url = format!("{}{path}", self.session);
        let request = ureq::get(&url).config().http_status_as_error(false).build();
        value(request.call().unwrap_or_else(|e| panic!("{url}: {e}")))
    }
}

fn value(mut answer: ureq::http::Response<ureq::Body>) -> Value {
    let body = answer.body_mut().with_config().limit(64 << 20).read_to_string();
    let body: Value = serde_json::from_str(&body.expect("an answer")).expect("JSON");
    assert!(body["value"]["error"].is_null(), "{}", body["value"]["message"]);
    body["value"].clone()
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Closes Chromium too, which would outlive its driver.
        let _ = ureq::delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
