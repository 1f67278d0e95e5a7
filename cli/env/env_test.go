package env_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/cli/env"
	"github.com/nereid-serving/nereid/conda/cache"
	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// fill creates a cache with one environment of about 100 KB for each key. The returned environments
// are in use.
func fill(t *testing.T, dir string, keys ...string) map[string]*cache.Environment {
	t.Helper()
	c, err := cache.Open(cache.Options{Directory: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	all := map[string]*cache.Environment{}
	for _, key := range keys {
		env, err := c.Build(t.Context(), key, func(_ context.Context, dir string) error {
			return os.WriteFile(filepath.Join(dir, "file"), bytes.Repeat([]byte(key), 100_000/len(key)), 0o600)
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(env.Release)
		all[key] = env
	}
	return all
}

// try runs a command line with the cache's directory.
func try(dir string, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = env.Run(append(args, "--env-cache-directory", dir), &out, &errs)
	return status, out.String(), errs.String()
}

func TestListShowsAllEntries(t *testing.T) {
	dir := t.TempDir()
	made := fill(t, dir, "one", "two")
	made["two"].Release()
	if err := os.Mkdir(filepath.Join(dir, "0123456789ab-01234567"), 0o700); err != nil {
		t.Fatal(err)
	}
	status, out, _ := try(dir, "list")
	for _, want := range []string{"NAME", filepath.Base(made["one"].Directory), "in use", "unused", "leftover", "3 environments, 200.0 KiB"} {
		if !strings.Contains(out, want) || status != 0 {
			t.Errorf("list: got status %d and\n%s\nwant 0 and %q", status, out, want)
		}
	}
	status, out, _ = try(dir, "list", "--json")
	var entries []cache.Entry
	if err := json.Unmarshal([]byte(out), &entries); err != nil || status != 0 || len(entries) != 3 {
		t.Fatalf("list --json: got status %d, %v and %s, want three entries", status, err, out)
	}
	for _, e := range entries {
		want := cache.Entry{Name: e.Name, Directory: filepath.Join(dir, e.Name)}
		if e.Complete {
			want = cache.Entry{
				Name: e.Name, Directory: made[e.Source].Directory, Digest: made[e.Source].Digest, Source: e.Source, Complete: true,
				Bytes: 100 << 10, Files: 1, Created: e.Created, Used: e.Used, InUse: e.Source == "one",
			}
		}
		if e != want {
			t.Errorf("got %+v, want %+v", e, want)
		}
	}
}

func TestPruneRemovesTheChosenEntries(t *testing.T) {
	for _, test := range []struct {
		name   string
		args   []string
		status int
		left   []string // of a, b and c; c is in use, and a has not been used for two days
		says   string
	}{
		{"all", []string{"--all"}, 0, []string{"c"}, "2 environments removed, 200.0 KiB"},
		{"by age", []string{"--unused=1d"}, 0, []string{"b", "c"}, "1 environment removed"},
		{"by age, none", []string{"--unused=72h"}, 0, []string{"a", "b", "c"}, "0 environments removed"},
		{"by size", []string{"--max-bytes=250K"}, 0, []string{"b", "c"}, "1 environment removed"},
		{"by size, nothing may stay", []string{"--max-bytes=0"}, 0, []string{"c"}, "2 environments removed"},
		{"by name", []string{"a"}, 0, []string{"b", "c"}, "of a"},
		{"one in use", []string{"c", "b"}, 1, []string{"a", "c"}, "is in use and stays"},
		{"one that is not there", []string{"d"}, 1, []string{"a", "b", "c"}, `no environment "d"`},
		{"nothing", nil, 2, []string{"a", "b", "c"}, "nothing selected"},
		{"no age", []string{"--unused=-1d"}, 2, []string{"a", "b", "c"}, "want a time above zero"},
		{"no size", []string{"--max-bytes=9999999T"}, 2, []string{"a", "b", "c"}, "want a number of bytes"},
		{"no flag", []string{"--everything"}, 2, []string{"a", "b", "c"}, "everything"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			made := fill(t, dir, "a", "b", "c")
			made["a"].Release()
			made["b"].Release()
			old := time.Now().Add(-48 * time.Hour)
			if err := os.Chtimes(filepath.Join(dir, "locks", filepath.Base(made["a"].Directory)+".env"), old, old); err != nil {
				t.Fatal(err)
			}
			status, out, errs := try(dir, append([]string{"prune"}, test.args...)...)
			if status != test.status || !strings.Contains(out+errs, test.says) {
				t.Errorf("got status %d, %q and %q, want %d and %q", status, out, errs, test.status, test.says)
			}
			var left []string
			for _, key := range []string{"a", "b", "c"} {
				if _, err := os.Stat(made[key].Directory); err == nil {
					left = append(left, key)
				}
			}
			if strings.Join(left, " ") != strings.Join(test.left, " ") {
				t.Errorf("got %v left, want %v", left, test.left)
			}
		})
	}
}

func TestVerifyTellsDamage(t *testing.T) {
	dir := t.TempDir()
	made := fill(t, dir, "one", "two")
	if status, out, errs := try(dir, "verify", "--deep"); status != 0 || strings.Count(out, " ok\n") != 2 {
		t.Errorf("verify: got status %d, %q and %q, want both ok", status, out, errs)
	}
	path := filepath.Join(made["one"].Directory, "file")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[77] ^= 1
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, _ := try(dir, "verify"); status != 0 {
		t.Error("verify looks at bytes, want that of --deep alone")
	}
	status, out, _ := try(dir, "verify", "one", "--deep")
	if status != 1 || !strings.Contains(out, "file has different content") || !strings.Contains(out, "nereid env prune "+filepath.Base(made["one"].Directory)) {
		t.Errorf("verify of a changed file: got status %d and %q, want 1, the file and the remedy", status, out)
	}
	status, out, _ = try(dir, "verify", "--deep", "--json")
	var all []env.Verified
	if err := json.Unmarshal([]byte(out), &all); err != nil || status != 1 || len(all) != 2 || len(all[0].Damage)+len(all[1].Damage) != 1 {
		t.Errorf("verify --json: got status %d, %v and %s, want the damage of one", status, err, out)
	}
}

func TestInvalidCommandLines(t *testing.T) {
	for _, test := range []struct {
		args   []string
		status int
		out    string
		err    string
	}{
		{nil, 2, "", "Usage: nereid env COMMAND"},
		{[]string{"--help"}, 0, "Usage: nereid env COMMAND", ""},
		{[]string{"lst"}, 2, "", "nereid env: unknown command \"lst\"\ndid you mean list? see nereid env --help\n"},
		{[]string{"list", "--help"}, 0, "--env-cache-directory", ""},
		{[]string{"list", "x"}, 2, "", `unexpected argument "x"`},
		{[]string{"list", "--env-cache-directory", "/nowhere"}, 1, "", "/nowhere"},
		{[]string{"list", "--env-cache-directory", "/dev/null"}, 1, "", "not a directory"},
	} {
		var out, errs bytes.Buffer
		status := env.Run(test.args, &out, &errs)
		if status != test.status || !strings.Contains(out.String(), test.out) || !strings.Contains(errs.String(), test.err) || test.err == "" && errs.Len() > 0 {
			t.Errorf("%v: got status %d, %q and %q, want %d, %q and %q", test.args, status, out.String(), errs.String(), test.status, test.out, test.err)
		}
	}
}
