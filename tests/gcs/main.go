// A Google Cloud Storage server for tests: fake-gcs-server, whose objects, generations and conditions these are,
// behind the XML API. Our client speaks that one, and fake-gcs-server only the JSON API, with some of the other.
//
//	fake-gcs-server -port PORT -folder FOLDER
//
// Everything is in FOLDER, so that it can be killed and started again. It ends with its standard input.
package main

import (
	"bytes"
	"crypto/md5"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"log"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

// How many names a page of a listing has, as Google's.
const pageNames = 1000

func main() {
	port := flag.Int("port", 0, "where to listen on 127.0.0.1")
	folder := flag.String("folder", "", "where everything is kept")
	flag.Parse()
	host := fmt.Sprintf("127.0.0.1:%d", *port)
	listener, err := net.Listen("tcp", host)
	check(err)
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{
		NoListener: true, Scheme: "http", PublicHost: host, StorageRoot: filepath.Join(*folder, "objects"),
	})
	check(err)
	uploads := filepath.Join(*folder, "uploads")
	check(os.MkdirAll(uploads, 0o700))
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Println("listens at http://" + host)
	log.Fatal(http.Serve(listener, front{server.HTTPHandler(), uploads, host}))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// front turns requests of the XML API into those of the JSON API.
type front struct {
	inner   http.Handler
	uploads string
	host    string
}

func (f front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.EscapedPath(), "/")
	bucket, object, _ := strings.Cut(path, "/")
	if bucket == "storage" || bucket == "upload" {
		f.inner.ServeHTTP(w, r) // The JSON API itself.
		return
	}
	bucket, object = unescape(bucket), unescape(object)
	if f.ask("GET", "/storage/v1/b/"+url.PathEscape(bucket), nil, "").Code != http.StatusOK {
		fail(w, http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist.")
		return
	}
	query := r.URL.Query()
	upload := filepath.Join(f.uploads, filepath.Base(query.Get("uploadId")))
	switch {
	case object == "" && r.Method == "GET":
		f.list(w, bucket, query)
	case r.Method == "POST" && query.Has("uploads"):
		f.begin(w)
	case query.Has("uploadId") && !isDir(upload):
		fail(w, http.StatusNotFound, "NoSuchUpload", "The requested upload was not found.")
	case r.Method == "PUT" && query.Has("uploadId"):
		putPart(w, r, filepath.Join(upload, filepath.Base(query.Get("partNumber"))))
	case r.Method == "POST" && query.Has("uploadId"):
		f.complete(w, r, bucket, object, upload)
	case r.Method == "DELETE" && query.Has("uploadId"):
		check(os.RemoveAll(upload))
		w.WriteHeader(http.StatusNoContent)
	case r.Method == "PUT":
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // The client has gone: nothing is written.
		}
		f.put(w, bucket, object, body, r.Header.Get("x-goog-if-generation-match"))
	case r.Method == "DELETE":
		path := "/storage/v1/b/" + url.PathEscape(bucket) + "/o/" + url.PathEscape(object)
		if code := f.ask("DELETE", path, nil, "").Code; code != http.StatusOK {
			fail(w, code, "NoSuchKey", "The specified key does not exist.")
			return
		}
		w.WriteHeader(http.StatusNoContent)
	case r.Method == "GET" || r.Method == "HEAD":
		f.get(w, r)
	default:
		fail(w, http.StatusMethodNotAllowed, "MethodNotAllowed", r.Method)
	}
}

// ask sends a request to fake-gcs-server.
func (f front) ask(method, path string, body []byte, contentType string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, bytes.NewReader(body))
	r.Host = f.host
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	answer := httptest.NewRecorder()
	f.inner.ServeHTTP(answer, r)
	return answer
}

// put writes an object, if its generation is the one that is given.
func (f front) put(w http.ResponseWriter, bucket, object string, content []byte, generation string) {
	var body bytes.Buffer
	parts := multipart.NewWriter(&body)
	about, _ := json.Marshal(map[string]string{"name": object})
	for _, part := range [][]byte{about, content} {
		section, err := parts.CreatePart(textproto.MIMEHeader{"Content-Type": {"application/octet-stream"}})
		check(err)
		_, err = section.Write(part)
		check(err)
	}
	check(parts.Close())
	query := url.Values{"uploadType": {"multipart"}, "name": {object}}
	if generation != "" {
		query.Set("ifGenerationMatch", generation)
	}
	path := "/upload/storage/v1/b/" + url.PathEscape(bucket) + "/o?" + query.Encode()
	answer := f.ask("POST", path, body.Bytes(), "multipart/related; boundary="+parts.Boundary())
	var written struct{ Generation string }
	if answer.Code == http.StatusOK {
		check(json.Unmarshal(answer.Body.Bytes(), &written))
	} else if answer.Code == http.StatusPreconditionFailed {
		fail(w, answer.Code, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold.")
		return
	} else {
		fail(w, answer.Code, "InternalError", answer.Body.String())
		return
	}
	w.Header().Set("ETag", tag(content))
	w.Header().Set("x-goog-generation", written.Generation)
}

func (f front) begin(w http.ResponseWriter) {
	id := make([]byte, 16)
	_, err := rand.Read(id)
	check(err)
	name := hex.EncodeToString(id)
	check(os.Mkdir(filepath.Join(f.uploads, name), 0o700))
	fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", name)
}

func putPart(w http.ResponseWriter, r *http.Request, file string) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	check(os.WriteFile(file+"#", body, 0o600))
	check(os.Rename(file+"#", file))
	w.Header().Set("ETag", tag(body))
}

// complete joins the parts that the request names.
func (f front) complete(w http.ResponseWriter, r *http.Request, bucket, object, upload string) {
	var named struct {
		Part []struct {
			PartNumber int
			ETag       string
		}
	}
	if err := xml.NewDecoder(r.Body).Decode(&named); err != nil {
		fail(w, http.StatusBadRequest, "MalformedCompleteMultipartUploadRequest", err.Error())
		return
	}
	var content []byte
	for _, part := range named.Part {
		bytes, err := os.ReadFile(filepath.Join(upload, strconv.Itoa(part.PartNumber)))
		if err != nil || strings.Trim(part.ETag, `"`) != strings.Trim(tag(bytes), `"`) {
			fail(w, http.StatusBadRequest, "InvalidPart", "One or more of the parts could not be found.")
			return
		}
		content = append(content, bytes...)
	}
	put := httptest.NewRecorder()
	f.put(put, bucket, object, content, "")
	if put.Code == http.StatusOK {
		fmt.Fprintf(put, "<CompleteMultipartUploadResult><ETag>%s</ETag></CompleteMultipartUploadResult>", tag(content))
		check(os.RemoveAll(upload))
	}
	for name, values := range put.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(put.Code)
	_, _ = w.Write(put.Body.Bytes())
}

// get returns an object, with its entity tag and the conditions on it, which fake-gcs-server lacks.
func (f front) get(w http.ResponseWriter, r *http.Request) {
	head := f.ask("HEAD", r.URL.EscapedPath(), nil, "")
	if head.Code == http.StatusNotFound {
		fail(w, http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
		return
	}
	_, sum, _ := strings.Cut(head.Header().Get("X-Goog-Hash"), "md5=")
	digest, err := base64.StdEncoding.DecodeString(sum)
	check(err)
	etag := `"` + hex.EncodeToString(digest) + `"`
	w.Header().Set("ETag", etag)
	if match := r.Header.Get("If-Match"); match != "" && match != etag {
		fail(w, http.StatusPreconditionFailed, "PreconditionFailed", "If-Match")
		return
	}
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	f.inner.ServeHTTP(w, r)
}

// list returns a page of names, in order and after those that the request says it has.
func (f front) list(w http.ResponseWriter, bucket string, query url.Values) {
	after := query.Get("continuation-token")
	if after == "" {
		after = query.Get("start-after")
	}
	wanted := url.Values{"prefix": query["prefix"], "delimiter": query["delimiter"]}
	answer := f.ask("GET", "/"+url.PathEscape(bucket)+"?"+wanted.Encode(), nil, "")
	var all fakestorage.ListBucketResult
	if err := xml.Unmarshal(answer.Body.Bytes(), &all); err != nil {
		fail(w, http.StatusInternalServerError, "InternalError", answer.Body.String())
		return
	}
	sort.Slice(all.Contents, func(a, b int) bool { return all.Contents[a].Key < all.Contents[b].Key })
	sort.Slice(all.CommonPrefixes, func(a, b int) bool { return all.CommonPrefixes[a].Prefix < all.CommonPrefixes[b].Prefix })
	page := struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		CommonPrefixes        []fakestorage.CommonPrefix
		Contents              []fakestorage.Contents
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
	}{}
	for {
		first := len(all.Contents) > 0 &&
			(len(all.CommonPrefixes) == 0 || all.Contents[0].Key < all.CommonPrefixes[0].Prefix)
		if !first && len(all.CommonPrefixes) == 0 {
			break
		}
		if len(page.Contents)+len(page.CommonPrefixes) == pageNames {
			page.IsTruncated = true
			break
		}
		if first {
			if name := all.Contents[0].Key; name > after {
				page.Contents = append(page.Contents, all.Contents[0])
				page.NextContinuationToken = name
			}
			all.Contents = all.Contents[1:]
			continue
		}
		if name := all.CommonPrefixes[0].Prefix; name > after {
			page.CommonPrefixes = append(page.CommonPrefixes, all.CommonPrefixes[0])
			page.NextContinuationToken = name
		}
		all.CommonPrefixes = all.CommonPrefixes[1:]
	}
	if !page.IsTruncated {
		page.NextContinuationToken = ""
	}
	w.Header().Set("Content-Type", "application/xml")
	check(xml.NewEncoder(w).Encode(page))
}

func fail(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, message)
}

func tag(content []byte) string {
	sum := md5.Sum(content)
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

func unescape(name string) string {
	if plain, err := url.PathUnescape(name); err == nil {
		return plain
	}
	return name
}

func isDir(path string) bool {
	about, err := os.Stat(path)
	return err == nil && about.IsDir()
}
