package objectstore_test

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/objectstore"
)

func TestKeysAreChecked(t *testing.T) {
	for key, want := range map[string]string{
		"config.pbtxt":                      "",
		"bert/1/model.py":                   "",
		"a b/ü/…":                           "",
		"..a/b..":                           "",
		strings.Repeat("a", 255):            "",
		"":                                  "it is empty",
		"/etc/passwd":                       "it has an empty component",
		"a//b":                              "it has an empty component",
		"a/":                                "it has an empty component",
		"../a":                              `".." is a component`,
		"a/../../b":                         `".." is a component`,
		"a/.":                               `"." is a component`,
		"a\x00b":                            "it has a control character",
		"a\nb":                              "it has a control character",
		"a\u0085b":                          "it has a control character",
		"a\xffb":                            "it is not UTF-8",
		strings.Repeat("a", 256):            "a component has 256 bytes, at most 255 are allowed",
		strings.Repeat("abc/", 300) + "end": "it has 1203 bytes, at most 1024 are allowed",
	} {
		got := ""
		if err := objectstore.CheckKey(key); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%.40q: got %q, want %q", key, got, want)
		}
	}
}

// FuzzCheckKey checks that every accepted key is a path below the directory it is joined to.
func FuzzCheckKey(f *testing.F) {
	for _, seed := range []string{"a/b", "../a", "a/../b", "/a", "a//b", "a/./b", "..", "a\x00", "\\..\\a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if objectstore.CheckKey(key) == nil && (!filepath.IsLocal(key) || filepath.Clean(key) != key || strings.ContainsRune(key, 0)) {
			t.Errorf("%q is accepted", key)
		}
	})
}

func TestRefusedKeysAreListed(t *testing.T) {
	l, _, _ := objectstore.Parse("s3://bucket/models?")
	l.Text = "s3://bucket/models"
	var refused objectstore.RefusedError
	for range 30 {
		refused.Refuse(l, "bert//\nmodel.py", objectstore.CheckKey("bert//model.py"))
	}
	if want := `Cannot handle item with empty name at s3://bucket/models/bert (the object "bert// model.py" has no name that a file can have: it has an empty component)`; refused.Error() != want {
		t.Errorf("got  %s\nwant %s", refused.Error(), want)
	}
	if _, has := refused.Names["bert"]; !has || len(refused.Names) != 1 || refused.Partial {
		t.Errorf("got the names %v, want bert alone, and all", refused.Names)
	}
	if refused.Count != 30 || len(refused.Keys) != 20 || refused.Keys[0] != "bert//\nmodel.py" {
		t.Errorf("got %d keys, %d listed: %q", refused.Count, len(refused.Keys), refused.Keys)
	}
}

// TestNamesOfRefusedKeysAreBounded checks that RefusedError keeps a bounded number of names and
// sets Partial if there are more. Names that no key can have do not count.
func TestNamesOfRefusedKeysAreBounded(t *testing.T) {
	l, _, _ := objectstore.Parse("s3://bucket")
	var refused objectstore.RefusedError
	why := objectstore.CheckKey("")
	refused.Refuse(l, strings.Repeat("a", 256)+"/x", why)
	for range 2 {
		for i := range 10_000 {
			refused.Refuse(l, strconv.Itoa(i)+"//", why)
		}
	}
	if len(refused.Names) != 10_000 || refused.Partial {
		t.Fatalf("got %d names, partial %v, want 10000, and all", len(refused.Names), refused.Partial)
	}
	refused.Refuse(l, "other//", why)
	if len(refused.Names) != 10_000 || !refused.Partial {
		t.Errorf("got %d names, partial %v, want 10000, and not all", len(refused.Names), refused.Partial)
	}
}
