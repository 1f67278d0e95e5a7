package providers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/objectstore"
)

// protocol is how one kind of store speaks.
type protocol struct {
	scheme string
	// page is a listing of one object of 10 bytes with that key, in version v1; refusal is an error with a status and a name.
	page    func(key string) string
	refusal func(w http.ResponseWriter, status int, name string)
}

var protocols = []protocol{
	{"s3", func(key string) string {
		return `<?xml version="1.0"?><ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated><Contents><Key>` + key +
			`</Key><Size>10</Size><ETag>"v1"</ETag><LastModified>2026-01-02T03:04:05.000Z</LastModified></Contents></ListBucketResult>`
	}, func(w http.ResponseWriter, status int, name string) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no entry</Message></Error>", name)
	}},
	{"gs", func(key string) string {
		return `{"items": [{"name": "` + key + `", "size": "10", "generation": "v1", "updated": "2026-01-02T03:04:05Z"}]}`
	}, func(w http.ResponseWriter, status int, name string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error": {"code": %d, "message": "%s: no entry"}}`, status, name)
	}},
	{"as", func(key string) string {
		return `<?xml version="1.0"?><EnumerationResults><Blobs><Blob><Name>` + key +
			`</Name><Properties><Last-Modified>Fri, 02 Jan 2026 03:04:05 GMT</Last-Modified><Etag>v1</Etag><Content-Length>10</Content-Length></Properties></Blob></Blobs><NextMarker/></EnumerationResults>`
	}, func(w http.ResponseWriter, status int, name string) {
		w.Header().Set("x-ms-error-code", name)
		w.WriteHeader(status)
	}},
}

// isListing tells requests for a page from those for an object.
func isListing(r *http.Request) bool {
	query := r.URL.Query()
	return query.Has("list-type") || query.Has("comp") || strings.HasPrefix(r.URL.Path, "/storage/v1/b/bucket/o") && !query.Has("alt")
}

// serve runs a store of a kind, and returns its location.
func serve(t *testing.T, p protocol, handler http.HandlerFunc) objectstore.Location {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return locate(t, p.scheme, server.Listener.Addr().String())
}

func locate(t *testing.T, scheme, address string) objectstore.Location {
	t.Helper()
	setEnvironment(t, map[string]string{
		"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "the-secret",
		"STORAGE_EMULATOR_HOST": address, "AZURE_STORAGE_SERVICE_ENDPOINT": "http://" + address, "AZURE_STORAGE_KEY": "dGhlLXNlY3JldA==",
	})
	url := map[string]string{"s3": "s3://" + address + "/bucket", "gs": "gs://bucket", "as": "as://account/bucket"}[scheme]
	l, _, err := objectstore.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	l.Named = true
	return l
}

func eachProtocol(t *testing.T, tell func(t *testing.T, p protocol)) {
	for _, p := range protocols {
		t.Run(p.scheme, func(t *testing.T) { tell(t, p) })
	}
}

func opened(t *testing.T, l objectstore.Location) objectstore.Bucket {
	t.Helper()
	b, err := Open(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

const content = "0123456789"

// TestStoresThatHang accepts connections and never answers: calls end with their contexts.
func TestStoresThatHang(t *testing.T) {
	eachProtocol(t, func(t *testing.T, p protocol) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		l := locate(t, p.scheme, listener.Addr().String())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := Open(ctx, l)
			ended <- err
		}()
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Read(make([]byte, 1)); err != nil { // the call is on its way
			t.Fatal(err)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "Check account credentials.") {
			t.Errorf("got %v, want the context's error in Triton's text", err)
		}
	})
}

// TestStoresThatStall never answer a call without an end of its own.
func TestStoresThatStall(t *testing.T) {
	eachProtocol(t, func(t *testing.T, p protocol) {
		done := make(chan struct{})
		var calls atomic.Int32
		l := serve(t, p, func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			<-done
		})
		defer close(done)
		b, err := objectstore.NewOpener(os.Getenv, connector{20 * time.Millisecond, mostReply}.connect)(t.Context(), l)
		if err == nil {
			_ = b.Close()
		}
		if !errors.Is(err, objectstore.ErrUnreachable) || calls.Load() != 3 {
			t.Errorf("got %v after %d calls, want 3 and that it cannot be reached", err, calls.Load())
		}
	})
}

// TestBodiesThatLie sends other bytes than it has listed.
func TestBodiesThatLie(t *testing.T) {
	for _, test := range []struct {
		name string
		send func(w http.ResponseWriter, from int)
		want string
		is   error
	}{
		{"whole", func(w http.ResponseWriter, from int) { _, _ = io.WriteString(w, content[from:]) }, content, nil},
		{"more", func(w http.ResponseWriter, from int) { _, _ = io.WriteString(w, content[from:]+"more") }, content, objectstore.ErrChanged},
		{"fewer", func(w http.ResponseWriter, from int) { _, _ = io.WriteString(w, content[from:min(from+1, 4)]) }, content[:4], objectstore.ErrUnreachable},
		{"half, and the connection ends", func(w http.ResponseWriter, from int) {
			w.Header().Set("Content-Length", fmt.Sprint(len(content)-from))
			if from < 4 {
				_, _ = io.WriteString(w, content[from:from+1])
			}
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, content[:4], objectstore.ErrUnreachable},
	} {
		t.Run(test.name, func(t *testing.T) {
			eachProtocol(t, func(t *testing.T, p protocol) {
				l := serve(t, p, func(w http.ResponseWriter, r *http.Request) {
					if isListing(r) {
						_, _ = io.WriteString(w, p.page("f"))
						return
					}
					from := 0
					for _, header := range []string{"Range", "x-ms-range"} {
						if _, err := fmt.Sscanf(r.Header.Get(header), "bytes=%d-", &from); err == nil {
							w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-9/10", from))
						}
					}
					if from > 0 {
						w = &partial{ResponseWriter: w}
					}
					test.send(w, from)
				})
				b := opened(t, l)
				got, err := read(t.Context(), b, list(t, b, "")["f"])
				if got != test.want || !errors.Is(err, test.is) {
					t.Errorf("got %q, %v; want %q, %v", got, err, test.want, test.is)
				}
			})
		})
	}
}

// partial answers with the status of a range.
type partial struct {
	http.ResponseWriter
	begun bool
}

func (p *partial) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p *partial) Write(b []byte) (int, error) {
	if !p.begun {
		p.begun = true
		p.WriteHeader(http.StatusPartialContent)
	}
	return p.ResponseWriter.Write(b)
}

func TestObjectsThatChange(t *testing.T) {
	eachProtocol(t, func(t *testing.T, p protocol) {
		var condition atomic.Value
		l := serve(t, p, func(w http.ResponseWriter, r *http.Request) {
			if isListing(r) {
				_, _ = io.WriteString(w, p.page("f"))
				return
			}
			condition.Store(r.Header.Get("If-Match") + r.URL.Query().Get("ifGenerationMatch"))
			p.refusal(w, http.StatusPreconditionFailed, "ConditionNotMet")
		})
		b := opened(t, l)
		_, err := read(t.Context(), b, list(t, b, "")["f"])
		if !errors.Is(err, objectstore.ErrChanged) || !strings.Contains(condition.Load().(string), "v1") {
			t.Errorf("got %v of a request for version %v", err, condition.Load())
		}
	})
}

func TestRefusals(t *testing.T) {
	for _, test := range []struct {
		status int
		name   string
		is     error
		calls  int32
	}{
		{http.StatusForbidden, "AccessDenied", objectstore.ErrDenied, 2}, // the second with the credentials read again
		{http.StatusUnauthorized, "InvalidAuthenticationInfo", objectstore.ErrDenied, 2},
		{http.StatusNotFound, "NoSuchBucket", objectstore.ErrAbsent, 1},
		{http.StatusServiceUnavailable, "SlowDown", objectstore.ErrUnreachable, 3},
		{http.StatusTooManyRequests, "TooManyRequests", objectstore.ErrUnreachable, 3},
		{http.StatusMovedPermanently, "PermanentRedirect", nil, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			eachProtocol(t, func(t *testing.T, p protocol) {
				var calls atomic.Int32
				l := serve(t, p, func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/elsewhere" {
						t.Error("the redirection is followed")
					}
					calls.Add(1)
					w.Header().Set("Location", "/elsewhere")
					p.refusal(w, test.status, test.name)
				})
				b, err := Open(t.Context(), l)
				if err == nil {
					_ = b.Close()
					t.Fatal("a store that refuses is opened")
				}
				if test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.name) || calls.Load() != test.calls {
					t.Errorf("got %v after %d calls; want %v after %d", err, calls.Load(), test.is, test.calls)
				}
			})
		})
	}
}

// TestExpiredTokens has a store refuse a session's token, as Amazon's does, until the file has another one.
func TestExpiredTokens(t *testing.T) {
	p := protocols[0]
	var calls atomic.Int32
	l := serve(t, p, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		if r.Header.Get("X-Amz-Security-Token") != "fresh" {
			p.refusal(w, http.StatusBadRequest, "ExpiredToken")
			return
		}
		_, _ = io.WriteString(w, p.page("f"))
	})
	path := filepath.Join(t.TempDir(), "credentials.json")
	t.Setenv(objectstore.CredentialFile, path)
	write := func(token string) {
		if err := os.WriteFile(path, []byte(`{"s3": {"": {"key_id": "id", "secret_key": "key", "session_token": "`+token+`"}}}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("stale")
	_, err := Open(t.Context(), l)
	if want := "Unable to create S3 filesystem client. Check account credentials. Exception: 'ExpiredToken' Message: 'no entry'"; err == nil || err.Error() != want || !errors.Is(err, objectstore.ErrDenied) {
		t.Errorf("got %v, want %s", err, want)
	}
	write("fresh")
	b := opened(t, l)
	if got := names(list(t, b, "")); len(got) != 1 || got[0] != "f" {
		t.Errorf("got %q", got)
	}
}

// TestListingsAreBounded sends a page without an end.
func TestListingsAreBounded(t *testing.T) {
	eachProtocol(t, func(t *testing.T, p protocol) {
		l := serve(t, p, func(w http.ResponseWriter, r *http.Request) {
			head, tail, _ := strings.Cut(p.page("\x00"), "\x00")
			_, _ = io.WriteString(w, head)
			_, _ = io.WriteString(w, strings.Repeat("a", 2000)+tail)
		})
		b, err := objectstore.NewOpener(os.Getenv, connector{stallTime, 1000}.connect)(t.Context(), l)
		if err == nil {
			_ = b.Close()
		}
		if !errors.Is(err, objectstore.ErrUnreachable) || !strings.Contains(err.Error(), "more than 1000 bytes") {
			t.Errorf("got %v, want that the reply is too long", err)
		}
	})
}

func TestMalformedListings(t *testing.T) {
	eachProtocol(t, func(t *testing.T, p protocol) {
		for _, text := range []string{"", "<html>", "{", `{"items": [{"size": "x"}]}`, "\x00\xff"} {
			l := serve(t, p, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, text) })
			b, err := Open(t.Context(), l)
			if err == nil { // an SDK may read a page without an object
				_ = b.List(t.Context(), "", func(o objectstore.Object) error {
					t.Errorf("%q: got %+v", text, o)
					return nil
				})
				_ = b.Close()
			}
		}
	})
}

// TestTruncatedListings has a server that knows the first version of listings alone: it names no token of the next page.
func TestTruncatedListings(t *testing.T) {
	p := protocols[0]
	var truncated atomic.Bool
	l := serve(t, p, func(w http.ResponseWriter, r *http.Request) {
		page := p.page("f")
		if truncated.Load() {
			page = strings.Replace(page, "<IsTruncated>false</IsTruncated>", "<IsTruncated>true</IsTruncated><NextMarker>f</NextMarker>", 1)
		}
		_, _ = io.WriteString(w, page)
	})
	b := opened(t, l)
	truncated.Store(true)
	err := b.List(t.Context(), "", func(objectstore.Object) error { return nil })
	if want := "MalformedListing, error message: the listing is truncated and names no next page"; err == nil || !strings.HasSuffix(err.Error(), want) || !errors.Is(err, objectstore.ErrUnreachable) {
		t.Errorf("got %v, want …%s", err, want)
	}
}

// TestStoresThatAreNotThere asks a port that nobody has.
func TestStoresThatAreNotThere(t *testing.T) {
	eachProtocol(t, func(t *testing.T, p protocol) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l := locate(t, p.scheme, listener.Addr().String())
		_ = listener.Close()
		_, err = Open(t.Context(), l)
		if !errors.Is(err, objectstore.ErrUnreachable) || !strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v", err)
		}
	})
}

// TestChecksums has each store report checksums in its own way: the bytes are compared with one of them, over bodies that were resumed
// too, and with none where the store tells none that can be computed.
func TestChecksums(t *testing.T) {
	const crc, md5 = "KAwGng==", "eB5eJF1ptWaXm4bijSPyxw==" // of content
	tell := map[string]func(h http.Header, crc, md5 string){
		"s3": func(h http.Header, crc, _ string) { h.Set("X-Amz-Checksum-Crc32c", crc) },
		"gs": func(h http.Header, crc, md5 string) {
			h.Add("X-Goog-Hash", "crc32c="+crc)
			h.Add("X-Goog-Hash", "md5="+md5)
		},
		"as": func(h http.Header, _, md5 string) { h.Set("Content-MD5", md5) },
	}
	for _, test := range []struct {
		name     string
		crc, md5 string
		breaks   bool // the first body
		fails    bool
	}{
		{"right", crc, md5, false, false},
		{"right and resumed", crc, md5, true, false},
		{"wrong", "KAwGnw==", "eB5eJF1ptWaXm4bijSPyxg==", false, true},
		{"wrong and resumed", "KAwGnw==", "eB5eJF1ptWaXm4bijSPyxg==", true, true},
		{"of parts", "KAwGnw==-2", "", false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			eachProtocol(t, func(t *testing.T, p protocol) {
				l := serve(t, p, func(w http.ResponseWriter, r *http.Request) {
					if isListing(r) {
						_, _ = io.WriteString(w, p.page("f"))
						return
					}
					if mode := r.Header.Get("X-Amz-Checksum-Mode"); p.scheme == "s3" && mode != "ENABLED" {
						t.Errorf("got the checksum mode %q", mode)
					}
					tell[p.scheme](w.Header(), test.crc, test.md5)
					if p.scheme == "as" && test.md5 == "" {
						w.Header().Del("Content-MD5")
					}
					w.Header().Set("ETag", map[string]string{"s3": `"v1"`, "as": "v1"}[p.scheme])
					if r.Header.Get("Range") == "" && r.Header.Get("X-Ms-Range") == "" {
						w.Header().Set("Content-Length", "10")
						if test.breaks {
							_, _ = io.WriteString(w, content[:4])
							return
						}
						_, _ = io.WriteString(w, content)
						return
					}
					w.Header().Set("Content-Range", "bytes 4-9/10")
					w.WriteHeader(http.StatusPartialContent)
					_, _ = io.WriteString(w, content[4:])
				})
				b := opened(t, l)
				text, err := read(t.Context(), b, list(t, b, "")["f"])
				switch {
				case !test.fails && (err != nil || text != content):
					t.Errorf("got %q, %v", text, err)
				case test.fails && (err == nil || !strings.Contains(err.Error(), "ChecksumMismatch: the bytes that came have the ") && !strings.Contains(err.Error(), "ChecksumMismatch, error message: the bytes that came have the ")):
					t.Errorf("got %q, %v; want that the sums differ", text, err)
				}
			})
		})
	}
}
