package objects_test

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

	"github.com/nereid-serving/nereid/objects"
)

// store is a client of a store that follows a script.
type store struct {
	mu    sync.Mutex
	pages func(prefix, from string, most int) ([]objects.Entry, string, error)
	read  func(key string, o objects.Object, offset int64) (io.ReadCloser, error)
	// connected is how often there was a connection, pageCalls and readCalls how often it was used.
	connected, pageCalls, readCalls, closed int
	credential                              objects.Credential // of the last connection
}

func (s *store) connect(_ context.Context, _ objects.Location, c objects.Credential) (objects.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connected++
	s.credential = c
	return &connection{s}, nil
}

// connection makes clients comparable.
type connection struct{ *store }

func (s *store) Page(_ context.Context, prefix, from string, most int) ([]objects.Entry, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pageCalls++
	return s.pages(prefix, from, most)
}

func (s *store) Read(_ context.Context, key string, o objects.Object, offset int64) (io.ReadCloser, error) {
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

// one is a store of one page.
func one(entries ...objects.Entry) *store {
	return &store{pages: func(string, string, int) ([]objects.Entry, string, error) { return entries, "", nil }}
}

func (s *store) open(t *testing.T, url string, getenv func(string) string) objects.Bucket {
	t.Helper()
	b, err := objects.NewOpener(getenv, s.connect)(t.Context(), parse(t, url))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func keys(t *testing.T, b objects.Bucket, prefix string) ([]string, error) {
	t.Helper()
	var got []string
	err := b.List(t.Context(), prefix, func(o objects.Object) error {
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
		objects.Entry{Key: "models/"}, // the directory itself
		objects.Entry{Key: "models/bert/"},
		objects.Entry{Key: "models/bert/1/model.py", Size: 3},
		objects.Entry{Key: "models/bert/2", Directory: true, Size: 7},
		objects.Entry{Key: "models/../../etc/passwd"},
		objects.Entry{Key: "models//model.py"},
		objects.Entry{Key: "models/bert/1//"},
		objects.Entry{Key: "elsewhere/config.pbtxt"},
		objects.Entry{Key: "models/bert/a\x00b"},
		objects.Entry{Key: "models/bert/negative", Size: -1},
		objects.Entry{Key: "models/bert/config.pbtxt"},
	)
	got, err := keys(t, s.open(t, "s3://bucket/models", environment{}.get), "")
	if want := []string{"bert is a directory", "bert/1/model.py", "bert/2 is a directory", "bert/config.pbtxt"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	var refused *objects.RefusedError
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
	s.pages = func(prefix, from string, _ int) ([]objects.Entry, string, error) {
		if prefix != "models/bert/" && s.pageCalls > 1 {
			t.Errorf("got prefix %q", prefix)
		}
		switch from {
		case "":
			return []objects.Entry{{Key: "models/bert/a"}}, "second", nil
		case "second":
			return nil, "third", nil // a page that a filter has emptied
		}
		return []objects.Entry{{Key: "models/bert/b"}}, "", nil
	}
	got, err := keys(t, s.open(t, "gs://bucket/models", environment{}.get), "bert/")
	if err != nil || !slices.Equal(got, []string{"bert/a", "bert/b"}) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestListingsThatDoNotEnd(t *testing.T) {
	for name, pages := range map[string]func(from string) ([]objects.Entry, string){
		"names itself": func(string) ([]objects.Entry, string) { return []objects.Entry{{Key: "a"}}, "again" },
		"empty pages":  func(from string) ([]objects.Entry, string) { return nil, from + "x" },
	} {
		s := &store{pages: func(_, from string, _ int) ([]objects.Entry, string, error) {
			page, next := pages(from)
			return page, next, nil
		}}
		_, err := keys(t, s.open(t, "s3://bucket", environment{}.get), "")
		if !errors.Is(err, objects.ErrUnreachable) || s.pageCalls > 200 {
			t.Errorf("%s: got %v after %d calls", name, err, s.pageCalls)
		}
	}
}

// TestListingsOfRefusedKeysEnd though the store goes on.
func TestListingsOfRefusedKeysEnd(t *testing.T) {
	page := slices.Repeat([]objects.Entry{{Key: "a//b"}}, 1000)
	s := &store{}
	s.pages = func(string, string, int) ([]objects.Entry, string, error) {
		return page, strconv.Itoa(s.pageCalls), nil
	}
	_, err := keys(t, s.open(t, "s3://bucket", environment{}.get), "")
	var refused *objects.RefusedError
	if !errors.As(err, &refused) || !refused.Partial || refused.Count > 1<<20+1000 {
		t.Errorf("got %v, want a partial list of refused keys", err)
	}
}

func TestListingsEndWithTheirReader(t *testing.T) {
	enough := errors.New("enough")
	s := one(objects.Entry{Key: "a"}, objects.Entry{Key: "b"})
	err := s.open(t, "s3://bucket", environment{}.get).List(t.Context(), "", func(objects.Object) error { return enough })
	if err != enough {
		t.Errorf("got %v, want the reader's own error", err)
	}
}

// TestRefusedCredentialsAreReadAgain replaces the file of the credentials while a listing is on its way.
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
	s.pages = func(_, from string, _ int) ([]objects.Entry, string, error) {
		switch {
		case s.credential.SecretKey != valid:
			return nil, "", objects.Cause{Reason: objects.ErrDenied, Name: "ExpiredToken", Message: "it has expired"}
		case from == "":
			return []objects.Entry{{Key: "a"}}, "next", nil
		}
		return []objects.Entry{{Key: "b"}}, "", nil
	}
	b := s.open(t, "s3://bucket", environment{objects.CredentialFile: path}.get)
	var got []string
	err := b.List(t.Context(), "", func(o objects.Object) error {
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

	valid = "third" // and the file is not replaced
	calls := s.pageCalls
	_, err = keys(t, b, "m/")
	if want := "Failed to list objects with prefix s3://bucket/m/ due to exception: ExpiredToken, error message: it has expired"; err == nil || err.Error() != want || !errors.Is(err, objects.ErrDenied) {
		t.Errorf("got %v, want %s", err, want)
	}
	if s.pageCalls != calls+2 {
		t.Errorf("got %d calls, want one and another one with the credentials read again", s.pageCalls-calls)
	}

	_ = os.Remove(path)
	if _, err = keys(t, b, ""); err == nil || !strings.Contains(err.Error(), "no such file") || !errors.Is(err, objects.ErrDenied) {
		t.Errorf("without the file: got %v", err)
	}
}

func TestStoresThatAreBusyAreAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		fail := 2
		s.pages = func(string, string, int) ([]objects.Entry, string, error) {
			if fail--; fail >= 0 {
				return nil, "", objects.Cause{Reason: objects.ErrUnreachable, Name: "SlowDown", Message: "later"}
			}
			return []objects.Entry{{Key: "a"}}, "", nil
		}
		b, err := objects.NewOpener(environment{}.get, s.connect)(t.Context(), parse(t, "s3://bucket"))
		if err != nil || s.pageCalls != 3 {
			t.Fatalf("got %v after %d calls", err, s.pageCalls)
		}
		fail, s.pageCalls = 100, 0
		if _, err := keys(t, b, ""); !errors.Is(err, objects.ErrUnreachable) || s.pageCalls != 3 {
			t.Errorf("got %v after %d calls, want 3", err, s.pageCalls)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.pageCalls = 0
		err = b.List(ctx, "", func(objects.Object) error { return nil })
		if !errors.Is(err, context.Canceled) || s.pageCalls != 1 {
			t.Errorf("got %v after %d calls, want one and the context's error", err, s.pageCalls)
		}
	})
}

func TestOpeningFails(t *testing.T) {
	denied := func(string, string, int) ([]objects.Entry, string, error) {
		return nil, "", objects.Cause{Reason: objects.ErrDenied, Name: "SignatureDoesNotMatch", Message: "two\nlines" + strings.Repeat("x", 1000)}
	}
	s := &store{pages: denied}
	_, err := objects.NewOpener(environment{}.get, s.connect)(t.Context(), parse(t, "s3://bucket"))
	if err == nil || !strings.HasPrefix(err.Error(), "Unable to create S3 filesystem client. Check account credentials. Exception: 'SignatureDoesNotMatch' Message: 'two linesxxx") || len(err.Error()) > 500 {
		t.Errorf("got %v", err)
	}
	if s.connected != s.closed {
		t.Errorf("got %d connections, %d closed", s.connected, s.closed)
	}
}

const content = "0123456789"

var listed = objects.Object{Key: "f", Size: int64(len(content)), Version: "v1"}

func TestBodies(t *testing.T) {
	body := func(text string) io.ReadCloser { return io.NopCloser(strings.NewReader(text)) }
	broken := func(text string) io.ReadCloser {
		return io.NopCloser(io.MultiReader(strings.NewReader(text), iotest.ErrReader(errors.New("connection reset"))))
	}
	cause := func(reason error) error { return objects.Cause{Reason: reason, Name: "N", Message: "M"} }
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
		{"always short", func(_ int, offset int64) (io.ReadCloser, error) { return body(content[offset : offset+1]), nil }, content[:4], objects.ErrUnreachable, 4},
		{"always broken", func(int, int64) (io.ReadCloser, error) { return broken(""), nil }, "", objects.ErrUnreachable, 4},
		{"too long", func(int, int64) (io.ReadCloser, error) { return body(content + "x"), nil }, content, objects.ErrChanged, 1},
		{"breaks at the end", func(int, int64) (io.ReadCloser, error) { return broken(content), nil }, content, objects.ErrUnreachable, 1},
		{"changed before", func(int, int64) (io.ReadCloser, error) { return nil, cause(objects.ErrChanged) }, "", objects.ErrChanged, 1},
		{"changed meanwhile", func(try int, _ int64) (io.ReadCloser, error) {
			if try == 1 {
				return broken(content[:4]), nil
			}
			return nil, cause(objects.ErrChanged)
		}, content[:4], objects.ErrChanged, 2},
		{"removed", func(int, int64) (io.ReadCloser, error) { return nil, cause(objects.ErrAbsent) }, "", objects.ErrAbsent, 1},
		{"denied", func(int, int64) (io.ReadCloser, error) { return nil, cause(objects.ErrDenied) }, "", objects.ErrDenied, 2},
		{"busy", func(try int, _ int64) (io.ReadCloser, error) {
			if try < 3 {
				return nil, cause(objects.ErrUnreachable)
			}
			return body(content), nil
		}, content, nil, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := one()
				s.read = func(key string, o objects.Object, offset int64) (io.ReadCloser, error) {
					if key != "models/f" || o != listed {
						t.Errorf("got a read of %s, %+v", key, o)
					}
					return test.read(s.readCalls, offset)
				}
				b, err := objects.NewOpener(environment{}.get, s.connect)(t.Context(), parse(t, "s3://bucket/models"))
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
				var typed *objects.Error
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
		s.read = func(string, objects.Object, int64) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(nil)), nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		b, err := objects.NewOpener(environment{}.get, s.connect)(ctx, parse(t, "s3://bucket"))
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
