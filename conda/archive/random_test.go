package archive_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/conda/archive"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// model predicts the result of unpacking random entries: a map from clean names to "directory", "=
// content" or "-> target". It uses no files and no system calls.
type model struct {
	nodes map[string]string
}

// refuse reports whether an entry must be refused. Otherwise it adds the entry to the model.
func (m *model) refuse(e archive.Entry) bool {
	name, ok := m.clean(e.Name)
	if !ok || name == "" && e.Typeflag != tar.TypeDir {
		return true
	}
	for above := path.Dir(name); above != "." && name != ""; above = path.Dir(above) {
		if node, there := m.nodes[above]; there && node != "directory" {
			return true
		}
	}
	node := ""
	switch e.Typeflag {
	case tar.TypeDir:
		if old, there := m.nodes[name]; there && old != "directory" {
			return true
		}
		node = "directory"
	case tar.TypeReg:
		node = "= " + e.Content
	case tar.TypeSymlink:
		if m.outward(name, e.Linkname) {
			return true
		}
		node = "-> " + e.Linkname
	case tar.TypeLink:
		target, ok := m.clean(e.Linkname)
		if !ok || target == "" || target == name {
			return true
		}
		if node = m.nodes[target]; node == "" || node == "directory" {
			return true
		}
		if text, isLink := strings.CutPrefix(node, "-> "); isLink && m.outward(name, text) {
			return true
		}
	default:
		return true
	}
	if node != "directory" && m.nodes[name] == "directory" {
		return true
	}
	if name == "" {
		return false
	}
	m.nodes[name] = node
	for above := path.Dir(name); above != "."; above = path.Dir(above) {
		m.nodes[above] = "directory"
	}
	return false
}

func (m *model) clean(name string) (string, bool) {
	if name == "" || name[0] == '/' || slices.Contains(strings.Split(name, "/"), "..") {
		return "", false
	}
	return strings.TrimPrefix(path.Clean("/"+name), "/"), true
}

// outward reports whether a link's target text alone leads outside.
func (m *model) outward(name, target string) bool {
	if target == "" || target[0] == '/' {
		return true
	}
	depth := strings.Count(name, "/")
	for c := range strings.SplitSeq(target, "/") {
		switch c {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return true
			}
		default:
			depth++
		}
	}
	return false
}

// escapes reports whether a link, followed through other links, leads outside. Such archives are
// refused at the end.
func (m *model) escapes() bool {
	for name, node := range m.nodes {
		target, isLink := strings.CutPrefix(node, "-> ")
		if !isLink {
			continue
		}
		at, todo, steps := path.Dir("/"+name), strings.Split(target, "/"), 0
		for len(todo) > 0 && steps < 41 {
			c := todo[0]
			todo = todo[1:]
			switch {
			case c == "" || c == ".":
			case c == ".." && at == "/":
				return true
			case c == "..":
				at = path.Dir(at)
			default:
				next := path.Join(at, c)
				if text, isLink := strings.CutPrefix(m.nodes[strings.TrimPrefix(next, "/")], "-> "); isLink {
					steps++
					todo = slices.Concat(strings.Split(text, "/"), todo)
				} else {
					at = next
				}
			}
		}
	}
	return false
}

func (m *model) list() (list []string) {
	for name, node := range m.nodes {
		list = append(list, name+" "+node)
	}
	slices.Sort(list)
	return list
}

// randomEntries returns entries from a small set of names, so that they collide.
func randomEntries(random *rand.Rand) []archive.Entry {
	components := []string{"a", "b", "c", "d", "e", "f", "g", "a", "b", "a", "..", ".", ""}
	name := func(most int) string {
		parts := make([]string, 1+random.IntN(most))
		for i := range parts {
			parts[i] = components[random.IntN(len(components))]
			if parts[i] == ".." && random.IntN(12) > 0 {
				parts[i] = "e"
			}
		}
		text := strings.Join(parts, "/")
		if random.IntN(12) > 0 {
			if text = strings.TrimLeft(text, "/"); path.Clean(text) == "." {
				text = "h/" + text
			}
		}
		return text
	}
	entries := make([]archive.Entry, 1+random.IntN(7))
	target := func(n string) string {
		depth := strings.Count(path.Clean("/"+n), "/") - 1
		ups := random.IntN(depth + 1)
		if random.IntN(40) == 0 {
			ups++
		}
		text := strings.Repeat("../", ups)
		switch random.IntN(4) {
		case 0:
			return strings.Repeat("../", depth) + "."
		case 1, 2: // up through another entry, which may be a link
			return strings.Repeat("../", depth) + strings.Trim(entries[random.IntN(len(entries))].Name, "/") + "/../" + name(1)
		}
		return text + name(2)
	}
	for i := range entries {
		n := name(2)
		switch random.IntN(10) {
		case 0, 1:
			entries[i] = archive.Regular(strings.TrimRight(n, "/"), fmt.Sprint("content ", i))
		case 2, 3:
			entries[i] = folder(n + "/")
		case 4, 5, 6, 7, 8:
			entries[i] = symlink(strings.TrimRight(n, "/"), target(n))
		case 9:
			entries[i] = hardLink(strings.TrimRight(n, "/"), entries[random.IntN(max(i, 1))].Name)
		}
	}
	return entries
}

// TestRandomEntriesStayInside unpacks random entries. Nothing outside changes, no created link
// leads outside, and entries are unpacked or refused as the model predicts.
func TestRandomEntriesStayInside(t *testing.T) {
	made, refused, late := 0, 0, 0
	seeds := uint64(400)
	if testkit.Long() {
		seeds = 5_000
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 7))
		entries := randomEntries(random)
		m := &model{nodes: map[string]string{}}
		want, kept := "", 0
		var data bytes.Buffer
		w := tar.NewWriter(&data)
		for _, e := range entries {
			e.Size = int64(len(e.Content))
			if err := w.WriteHeader(&e.Header); err != nil {
				continue // cannot be packed
			}
			if _, err := w.Write([]byte(e.Content)); err != nil {
				t.Fatal(err)
			}
			kept++
			if want == "" && m.refuse(e) {
				want = "refused"
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if want == "" && m.escapes() {
			want = "refused at the end"
			late++
		}
		if kept == 0 {
			continue
		}
		p := archive.NewDestination(t)
		err := p.Unpack(t, data.Bytes(), archive.Options{})
		p.LinksStayInside(t, seed, err != nil)
		switch {
		case (err != nil) != (want != ""):
			t.Errorf("seed %d: got error %v, want %q of\n%+v", seed, err, want, entries)
		case err == nil && !slices.Equal(p.List(t), m.list()):
			t.Errorf("seed %d: got  %q\nwant %q of\n%+v", seed, p.List(t), m.list(), entries)
		case err == nil:
			made++
		default:
			refused++
		}
		p.Root.Close()
		os.RemoveAll(p.Around)
	}
	if made < 50 || refused < 50 || late < 3 {
		t.Errorf("%d were unpacked, %d refused, %d of them at the end: want some of each", made, refused, late)
	}
}
