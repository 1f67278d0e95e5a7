package objectstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/nereid-serving/nereid/objectstore"
)

// store is a scripted store and its client.
type store struct {
	mu    sync.Mutex
	pages func(prefix, from string, most int) ([]objectstore.Entry, string, error)
	read  func(key string, o objectstore.Object, offset int64) (io.ReadCloser, error)
	// connected counts the connections, pageCalls and readCalls the uses of them.
	connected, pageCalls, readCalls, closed int
	credential                              objectstore.Credential // of the latest connection
}

func (s *store) connect(_ context.Context, _ objectstore.Location, c objectstore.Credential) (objectstore.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connected++
	s.credential = c
	return &connection{s}, nil
}

// connection makes clients comparable.
type connection struct{ *store }

func (s *store) Page(_ context.Context, prefix, from string, most int) ([]objectstore.Entry, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pageCalls++
	return s.pages(prefix, from, most)
}

func (s *store) Read(_ context.Context, key string, o objectstore.Object, offset int64) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readCalls++
	return s.read(key, o, offset)
}

func (s *store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
}

// one returns a store with a single page.
func one(entries ...objectstore.Entry) *store {
	return &store{pages: func(string, string, int) ([]objectstore.Entry, string, error) { return entries, "", nil }}
}

func (s *store) open(t *testing.T, url string, getenv func(string) string) objectstore.Bucket {
	t.Helper()
	b, err := objectstore.NewOpener(getenv, s.connect)(t.Context(), parse(t, url))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func keys(t *testing.T, b objectstore.Bucket, prefix string) ([]string, error) {
	t.Helper()
	var got []string
	err := b.List(t.Context(), prefix, func(o objectstore.Object) error {
		key := o.Key
		if o.Directory {
			key += " is a directory"
		}
		got = append(got, key)
		return nil
	})
	return got, err
}

func TestListingsAreRelativeAndChecked(t *testing.T) {
	s := one(
		objectstore.Entry{Key: "models/"}, // the directory itself
		objectstore.Entry{Key: "models/bert/"},
		objectstore.Entry{Key: "models/bert/1/model.py", Size: 3},
		objectstore.Entry{Key: "models/bert/2", Directory: true, Size: 7},
		objectstore.Entry{Key: "models/../../etc/passwd"},
		objectstore.Entry{Key: "models//model.py"},
		objectstore.Entry{Key: "models/bert/1//"},
		objectstore.Entry{Key: "elsewhere/config.pbtxt"},
		objectstore.Entry{Key: "models/bert/a\x00b"},
		objectstore.Entry{Key: "models/bert/negative", Size: -1},
		objectstore.Entry{Key: "models/bert/config.pbtxt"},
	)
	got, err := keys(t, s.open(t, "s3://bucket/models", environment{}.get), "")
	if want := []string{"bert is a directory", "bert/1/model.py", "bert/2 is a directory", "bert/config.pbtxt"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	var refused *objectstore.RefusedError
	if !errors.As(err, &refused) {
		t.Fatalf("got error %v, want a RefusedError", err)
	}
	if want := []string{"../../etc/passwd", "/model.py", "bert/1/", "elsewhere/config.pbtxt", "bert/a\x00b", "bert/negative"}; !slices.Equal(refused.Keys, want) || refused.Count != len(want) {
		t.Errorf("got %d refused, %q, want %q", refused.Count, refused.Keys, want)
	}
	if !strings.HasPrefix(err.Error(), "Cannot handle item with empty name at s3://bucket/models") {
		t.Errorf("got %q", err)
	}
}

func TestListingsGoOverPages(t *testing.T) {
	s := &store{}
	s.pages = func(prefix, from string, _ int) ([]objectstore.Entry, string, error) {
		if prefix != "models/bert/" && s.pageCalls > 1 {
			t.Errorf("got prefix %q", prefix)
		}
		switch from {
		case "":
			return []objectstore.Entry{{Key: "models/bert/a"}}, "second", nil
		case "second":
			return nil, "third", nil // a page emptied by a filter
		}
		return []objectstore.Entry{{Key: "models/bert/b"}}, "", nil
	}
	got, err := keys(t, s.open(t, "gs://bucket/models", environment{}.get), "bert/")
	if err != nil || !slices.Equal(got, []string{"bert/a", "bert/b"}) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestListingsThatDoNotEnd(t *testing.T) {
	for name, pages := range map[string]func(from string) ([]objectstore.Entry, string){
		"names itself": func(string) ([]objectstore.Entry, string) { return []objectstore.Entry{{Key: "a"}}, "again" },
		"empty pages":  func(from string) ([]objectstore.Entry, string) { return nil, from + "x" },
	} {
		s := &store{pages: func(_, from string, _ int) ([]objectstore.Entry, string, error) {
			page, next := pages(from)
			return page, next, nil
		}}
		_, err := keys(t, s.open(t, "s3://bucket", environment{}.get), "")
		if !errors.Is(err, objectstore.ErrUnreachable) || s.pageCalls > 200 {
			t.Errorf("%s: got %v after %d calls", name, err, s.pageCalls)
		}
	}
}

// TestListingsOfRefusedKeysEnd checks that a listing stops after too many refused keys, even if the
// store never ends it.
func TestListingsOfRefusedKeysEnd(t *testing.T) {
	page := slices.Repeat([]objectstore.Entry{{Key: "a//b"}}, 1000)
	s := &store{}
	s.pages = func(string, string, int) ([]objectstore.Entry, string, error) {
		return page, strconv.Itoa(s.pageCalls), nil
	}
	_, err := keys(t, s.open(t, "s3://bucket", environment{}.get), "")
	var refused *objectstore.RefusedError
	if !errors.As(err, &refused) || !refused.Partial || refused.Count > 1<<20+1000 {
		t.Errorf("got %v, want a partial list of refused keys", err)
	}
}

func TestListingsEndWithTheirReader(t *testing.T) {
	enough := errors.New("enough")
	s := one(objectstore.Entry{Key: "a"}, objectstore.Entry{Key: "b"})
	err := s.open(t, "s3://bucket", environment{}.get).List(t.Context(), "", func(objectstore.Object) error { return enough })
	if err != enough {
		t.Errorf("got %v, want the reader's own error", err)
	}
}

// TestRefusedCredentialsAreReadAgain checks that the credential file is read again if the store
// refuses the credentials during a listing.
func TestRefusedCredentialsAreReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "credentials.json")
	write := func(key string) {
		if err := os.WriteFile(path, fmt.Appendf(nil, `{"s3": {"": {"key_id": "id", "secret_key": %q}}}`, key), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	s := &store{}
	valid := "first"
	s.pages = func(_, from string, _ int) ([]objectstore.Entry, string, error) {
		switch {
		case s.credential.SecretKey != valid:
			return nil, "", objectstore.Cause{Reason: objectstore.ErrDenied, Name: "ExpiredToken", Message: "it has expired"}
		case from == "":
			return []objectstore.Entry{{Key: "a"}}, "next", nil
		}
		return []objectstore.Entry{{Key: "b"}}, "", nil
	}
	b := s.open(t, "s3://bucket", environment{objectstore.CredentialFile: path}.get)
	var got []string
	err := b.List(t.Context(), "", func(o objectstore.Object) error {
		got = append(got, o.Key)
		if o.Key == "a" {
			valid = "second"
			write("second")
		}
		return nil
	})
	if err != nil || !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("got %q, %v", got, err)
	}
	if s.connected != 2 || s.closed != 1 {
		t.Errorf("got %d connections, %d closed; want 2 and 1", s.connected, s.closed)
	}

	valid = "third" // while the file stays the same
	calls := s.pageCalls
	_, err = keys(t, b, "m/")
	if want := "Failed to list objects with prefix s3://bucket/m/ due to exception: ExpiredToken, error message: it has expired"; err == nil || err.Error() != want || !errors.Is(err, objectstore.ErrDenied) {
		t.Errorf("got %v, want %s", err, want)
	}
	if s.pageCalls != calls+2 {
		t.Errorf("got %d calls, want one and another one with the credentials read again", s.pageCalls-calls)
	}

	_ = os.Remove(path)
	if _, err = keys(t, b, ""); err == nil || !strings.Contains(err.Error(), "no such file") || !errors.Is(err, objectstore.ErrDenied) {
		t.Errorf("without the file: got %v", err)
	}
}

func TestStoresThatAreBusyAreAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		fail := 2
		s.pages = func(string, string, int) ([]objectstore.Entry, string, error) {
			if fail--; fail >= 0 {
				return nil, "", objectstore.Cause{Reason: objectstore.ErrUnreachable, Name: "SlowDown", Message: "later"}
			}
			return []objectstore.Entry{{Key: "a"}}, "", nil
		}
		b, err := objectstore.NewOpener(environment{}.get, s.connect)(t.Context(), parse(t, "s3://bucket"))
		if err != nil || s.pageCalls != 3 {
			t.Fatalf("got %v after %d calls", err, s.pageCalls)
		}
		fail, s.pageCalls = 100, 0
		if _, err := keys(t, b, ""); !errors.Is(err, objectstore.ErrUnreachable) || s.pageCalls != 3 {
			t.Errorf("got %v after %d calls, want 3", err, s.pageCalls)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.pageCalls = 0
		err = b.List(ctx, "", func(objectstore.Object) error { return nil })
		if !errors.Is(err, context.Canceled) || s.pageCalls != 1 {
			t.Errorf("got %v after %d calls, want one and the context's error", err, s.pageCalls)
		}
	})
}

func TestOpeningFails(t *testing.T) {
	denied := func(string, string, int) ([]objectstore.Entry, string, error) {
		return nil, "", objectstore.Cause{Reason: objectstore.ErrDenied, Name: "SignatureDoesNotMatch", Message: "two\nlines" + strings.Repeat("x", 1000)}
	}
	s := &store{pages: denied}
	_, err := objectstore.NewOpener(environment{}.get, s.connect)(t.Context(), parse(t, "s3://bucket"))
	if err == nil || !strings.HasPrefix(err.Error(), "Unable to create S3 filesystem client. Check account credentials. Exception: 'SignatureDoesNotMatch' Message: 'two linesxxx") || len(err.Error()) > 500 {
		t.Errorf("got %v", err)
	}
	if s.connected != s.closed {
		t.Errorf("got %d connections, %d closed", s.connected, s.closed)
	}
}

const content = "0123456789"

var listed = objectstore.Object{Key: "f", Size: int64(len(content)), Version: "v1"}

func TestBodies(t *testing.T) {
	body := func(text string) io.ReadCloser { return io.NopCloser(strings.NewReader(text)) }
	broken := func(text string) io.ReadCloser {
		return io.NopCloser(io.MultiReader(strings.NewReader(text), iotest.ErrReader(errors.New("connection reset"))))
	}
	cause := func(reason error) error { return objectstore.Cause{Reason: reason, Name: "N", Message: "M"} }
	for _, test := range []struct {
		name  string
		read  func(try int, offset int64) (io.ReadCloser, error)
		want  string
		is    error
		calls int
	}{
		{"whole", func(int, int64) (io.ReadCloser, error) { return body(content), nil }, content, nil, 1},
		{"byte by byte", func(int, int64) (io.ReadCloser, error) {
			return io.NopCloser(iotest.OneByteReader(strings.NewReader(content))), nil
		}, content, nil, 1},
		{"end with the last bytes", func(int, int64) (io.ReadCloser, error) {
			return io.NopCloser(iotest.DataErrReader(strings.NewReader(content))), nil
		}, content, nil, 1},
		{"breaks off and goes on", func(try int, offset int64) (io.ReadCloser, error) {
			if try == 1 {
				return broken(content[:4]), nil
			}
			return body(content[offset:]), nil
		}, content, nil, 2},
		{"is short and goes on", func(try int, offset int64) (io.ReadCloser, error) {
			if try == 1 {
				return body(content[:4]), nil
			}
			return body(content[offset:]), nil
		}, content, nil, 2},
		{"always short", func(_ int, offset int64) (io.ReadCloser, error) { return body(content[offset : offset+1]), nil }, content[:4], objectstore.ErrUnreachable, 4},
		{"always broken", func(int, int64) (io.ReadCloser, error) { return broken(""), nil }, "", objectstore.ErrUnreachable, 4},
		{"too long", func(int, int64) (io.ReadCloser, error) { return body(content + "x"), nil }, content, objectstore.ErrChanged, 1},
		{"breaks at the end", func(int, int64) (io.ReadCloser, error) { return broken(content), nil }, content, objectstore.ErrUnreachable, 1},
		{"changed before", func(int, int64) (io.ReadCloser, error) { return nil, cause(objectstore.ErrChanged) }, "", objectstore.ErrChanged, 1},
		{"changed meanwhile", func(try int, _ int64) (io.ReadCloser, error) {
			if try == 1 {
				return broken(content[:4]), nil
			}
			return nil, cause(objectstore.ErrChanged)
		}, content[:4], objectstore.ErrChanged, 2},
		{"removed", func(int, int64) (io.ReadCloser, error) { return nil, cause(objectstore.ErrAbsent) }, "", objectstore.ErrAbsent, 1},
		{"denied", func(int, int64) (io.ReadCloser, error) { return nil, cause(objectstore.ErrDenied) }, "", objectstore.ErrDenied, 2},
		{"busy", func(try int, _ int64) (io.ReadCloser, error) {
			if try < 3 {
				return nil, cause(objectstore.ErrUnreachable)
			}
			return body(content), nil
		}, content, nil, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := one()
				s.read = func(key string, o objectstore.Object, offset int64) (io.ReadCloser, error) {
					if key != "models/f" || o != listed {
						t.Errorf("got a read of %s, %+v", key, o)
					}
					return test.read(s.readCalls, offset)
				}
				b, err := objectstore.NewOpener(environment{}.get, s.connect)(t.Context(), parse(t, "s3://bucket/models"))
				if err != nil {
					t.Fatal(err)
				}
				var got []byte
				r, err := b.Open(t.Context(), listed)
				if err == nil {
					got, err = io.ReadAll(r)
					if _, again := r.Read(make([]byte, 1)); err != nil && again != err {
						t.Errorf("a read after the end: got %v, want %v", again, err)
					}
					_ = r.Close()
				}
				if string(got) != test.want || !errors.Is(err, test.is) || s.readCalls != test.calls {
					t.Errorf("got %q, %v after %d calls; want %q, %v after %d", got, err, s.readCalls, test.want, test.is, test.calls)
				}
				var typed *objectstore.Error
				if err != nil && !errors.As(err, &typed) {
					t.Errorf("got a %T", err)
				}
			})
		})
	}
}

func TestBodiesEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := one()
		s.read = func(string, objectstore.Object, int64) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(nil)), nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		b, err := objectstore.NewOpener(environment{}.get, s.connect)(ctx, parse(t, "s3://bucket"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := b.Open(ctx, listed)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := io.ReadAll(r); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the context's error", err)
		}
	})
}
