package providers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/objectstore"
	"github.com/nereid-serving/nereid/objectstore/providers"
)

const content = "0123456789"

// TestStoresThatHang checks that a call to a store that accepts connections and never replies ends
// with its context.
func TestStoresThatHang(t *testing.T) {
	providers.EachProtocol(t, func(t *testing.T, p providers.Protocol) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		l := providers.Locate(t, p.Scheme, listener.Addr().String())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := providers.Open(ctx, l)
			ended <- err
		}()
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Read(make([]byte, 1)); err != nil { // the request has arrived
			t.Fatal(err)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "Check account credentials.") {
			t.Errorf("got %v, want the context's error in Triton's text", err)
		}
	})
}

// TestBodiesThatLie checks bodies that have more or fewer bytes than listed, or break off.
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
			providers.EachProtocol(t, func(t *testing.T, p providers.Protocol) {
				l := providers.Serve(t, p, func(w http.ResponseWriter, r *http.Request) {
					if providers.IsListing(r) {
						_, _ = io.WriteString(w, p.Page("f"))
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
				b := providers.Opened(t, l)
				got, err := providers.Read(t.Context(), b, providers.List(t, b, "")["f"])
				if got != test.want || !errors.Is(err, test.is) {
					t.Errorf("got %q, %v; want %q, %v", got, err, test.want, test.is)
				}
			})
		})
	}
}

// partial replies with the status of a partial response.
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
	providers.EachProtocol(t, func(t *testing.T, p providers.Protocol) {
		var condition atomic.Value
		l := providers.Serve(t, p, func(w http.ResponseWriter, r *http.Request) {
			if providers.IsListing(r) {
				_, _ = io.WriteString(w, p.Page("f"))
				return
			}
			condition.Store(r.Header.Get("If-Match") + r.URL.Query().Get("ifGenerationMatch"))
			p.Refusal(w, http.StatusPreconditionFailed, "ConditionNotMet")
		})
		b := providers.Opened(t, l)
		_, err := providers.Read(t.Context(), b, providers.List(t, b, "")["f"])
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
		{http.StatusForbidden, "AccessDenied", objectstore.ErrDenied, 2}, // the second call uses credentials that were read again
		{http.StatusUnauthorized, "InvalidAuthenticationInfo", objectstore.ErrDenied, 2},
		{http.StatusNotFound, "NoSuchBucket", objectstore.ErrAbsent, 1},
		{http.StatusServiceUnavailable, "SlowDown", objectstore.ErrUnreachable, 3},
		{http.StatusTooManyRequests, "TooManyRequests", objectstore.ErrUnreachable, 3},
		{http.StatusMovedPermanently, "PermanentRedirect", nil, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			providers.EachProtocol(t, func(t *testing.T, p providers.Protocol) {
				var calls atomic.Int32
				l := providers.Serve(t, p, func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/elsewhere" {
						t.Error("the redirection is followed")
					}
					calls.Add(1)
					w.Header().Set("Location", "/elsewhere")
					p.Refusal(w, test.status, test.name)
				})
				b, err := providers.Open(t.Context(), l)
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

// TestExpiredTokens checks that an expired session token is refused, with Amazon's error, until the
// file has a new one.
func TestExpiredTokens(t *testing.T) {
	p := providers.Protocols[0]
	var calls atomic.Int32
	l := providers.Serve(t, p, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		if r.Header.Get("X-Amz-Security-Token") != "fresh" {
			p.Refusal(w, http.StatusBadRequest, "ExpiredToken")
			return
		}
		_, _ = io.WriteString(w, p.Page("f"))
	})
	path := filepath.Join(t.TempDir(), "credentials.json")
	t.Setenv(objectstore.CredentialFile, path)
	write := func(token string) {
		if err := os.WriteFile(path, []byte(`{"s3": {"": {"key_id": "id", "secret_key": "key", "session_token": "`+token+`"}}}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("stale")
	_, err := providers.Open(t.Context(), l)
	if want := "Unable to create S3 filesystem client. Check account credentials. Exception: 'ExpiredToken' Message: 'no entry'"; err == nil || err.Error() != want || !errors.Is(err, objectstore.ErrDenied) {
		t.Errorf("got %v, want %s", err, want)
	}
	write("fresh")
	b := providers.Opened(t, l)
	if got := providers.Names(providers.List(t, b, "")); len(got) != 1 || got[0] != "f" {
		t.Errorf("got %q", got)
	}
}

func TestMalformedListings(t *testing.T) {
	providers.EachProtocol(t, func(t *testing.T, p providers.Protocol) {
		for _, text := range []string{"", "<html>", "{", `{"items": [{"size": "x"}]}`, "\x00\xff"} {
			l := providers.Serve(t, p, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, text) })
			b, err := providers.Open(t.Context(), l)
			if err == nil { // an SDK may accept a page without an object
				_ = b.List(t.Context(), "", func(o objectstore.Object) error {
					t.Errorf("%q: got %+v", text, o)
					return nil
				})
				_ = b.Close()
			}
		}
	})
}

// TestTruncatedListings checks that a listing in S3's first version, which names no token for the
// next page, is an error.
func TestTruncatedListings(t *testing.T) {
	p := providers.Protocols[0]
	var truncated atomic.Bool
	l := providers.Serve(t, p, func(w http.ResponseWriter, r *http.Request) {
		page := p.Page("f")
		if truncated.Load() {
			page = strings.Replace(page, "<IsTruncated>false</IsTruncated>", "<IsTruncated>true</IsTruncated><NextMarker>f</NextMarker>", 1)
		}
		_, _ = io.WriteString(w, page)
	})
	b := providers.Opened(t, l)
	truncated.Store(true)
	err := b.List(t.Context(), "", func(objectstore.Object) error { return nil })
	if want := "MalformedListing, error message: the listing is truncated and names no next page"; err == nil || !strings.HasSuffix(err.Error(), want) || !errors.Is(err, objectstore.ErrUnreachable) {
		t.Errorf("got %v, want …%s", err, want)
	}
}

// TestStoresThatAreNotThere connects to a port without a listener.
func TestStoresThatAreNotThere(t *testing.T) {
	providers.EachProtocol(t, func(t *testing.T, p providers.Protocol) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l := providers.Locate(t, p.Scheme, listener.Addr().String())
		_ = listener.Close()
		_, err = providers.Open(t.Context(), l)
		if !errors.Is(err, objectstore.ErrUnreachable) || !strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v", err)
		}
	})
}

// TestChecksums checks that a body is compared with a checksum that its store reports, even after
// it was resumed. Checksums of multipart objects are ignored.
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
		breaks   bool // the first body breaks off
		fails    bool
	}{
		{"right", crc, md5, false, false},
		{"right and resumed", crc, md5, true, false},
		{"wrong", "KAwGnw==", "eB5eJF1ptWaXm4bijSPyxg==", false, true},
		{"wrong and resumed", "KAwGnw==", "eB5eJF1ptWaXm4bijSPyxg==", true, true},
		{"of parts", "KAwGnw==-2", "", false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			providers.EachProtocol(t, func(t *testing.T, p providers.Protocol) {
				l := providers.Serve(t, p, func(w http.ResponseWriter, r *http.Request) {
					if providers.IsListing(r) {
						_, _ = io.WriteString(w, p.Page("f"))
						return
					}
					if mode := r.Header.Get("X-Amz-Checksum-Mode"); p.Scheme == "s3" && mode != "ENABLED" {
						t.Errorf("got the checksum mode %q", mode)
					}
					tell[p.Scheme](w.Header(), test.crc, test.md5)
					if p.Scheme == "as" && test.md5 == "" {
						w.Header().Del("Content-MD5")
					}
					w.Header().Set("ETag", map[string]string{"s3": `"v1"`, "as": "v1"}[p.Scheme])
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
				b := providers.Opened(t, l)
				text, err := providers.Read(t.Context(), b, providers.List(t, b, "")["f"])
				switch {
				case !test.fails && (err != nil || text != content):
					t.Errorf("got %q, %v", text, err)
				case test.fails && (err == nil || !strings.Contains(err.Error(), "ChecksumMismatch: the received bytes have the ") && !strings.Contains(err.Error(), "ChecksumMismatch, error message: the received bytes have the ")):
					t.Errorf("got %q, %v; want that the sums differ", text, err)
				}
			})
		})
	}
}
