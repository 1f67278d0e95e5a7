package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/infer"
)

const outside = "; pack the environment with conda-pack, or name its directory instead of an archive"

// checkTarget checks the target of a symbolic link in a directory of depth components.
//
// A target is ".." any number of times, followed by names. The directory of a link is reached
// through directories only, so each ".." leads to the directory above, and as long as there are no
// more of them than components, the names begin inside. Names may be other links, for which the
// same holds. Only a ".." after a name may lead anywhere, because the name may be a link: upward
// reports it, and leaves checks it when all entries exist.
func checkTarget(depth int, target string) (upward bool, err error) {
	switch {
	case target == "":
		return false, &Error{Reason: "is a symbolic link without a target"}
	case target[0] == '/':
		return false, &Error{Reason: fmt.Sprintf("is a symbolic link to %q, outside the archive%s", infer.Cut(target, mostShown), outside)}
	case len(target) > maxTarget:
		return false, &Error{Reason: fmt.Sprintf("is a symbolic link to a name of %d bytes, at most %d are possible", len(target), maxTarget)}
	}
	if err := checkCharacters("the target of the symbolic link", target); err != nil {
		return false, err
	}
	named := false
	for component := range strings.SplitSeq(target, "/") {
		switch component {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return false, outwardError(target)
			}
			upward = upward || named
		default:
			depth++
			named = true
		}
	}
	return upward, nil
}

func outwardError(target string) error {
	return &Error{Reason: fmt.Sprintf("is a symbolic link to %q, which leads outside the archive%s", infer.Cut(target, mostShown), outside)}
}

// symlink creates a symbolic link.
func (t *tree) symlink(name, target string, mtime time.Time) error {
	above, _ := splitName(name)
	upward, err := checkTarget(depthOf(above), target)
	if err != nil {
		return err
	}
	if upward {
		if err := t.remember(name); err != nil {
			return err
		}
		t.upward = append(t.upward, strings.Clone(name)) // bound: maxName
	}
	return t.makeEntry(name, "make the symbolic link", func(parent *os.Root, base string) error {
		if err := parent.Symlink(target, base); err != nil {
			return err
		}
		return setLinkTime(parent, base, mtime)
	})
}

func depthOf(directory string) int {
	if directory == "" {
		return 0
	}
	return strings.Count(directory, "/") + 1
}

// link creates a hard link to a file of an earlier entry.
func (t *tree) link(name, target string, mtime time.Time) error {
	switch target {
	case name:
		return &Error{Reason: "is a hard link to itself"}
	case "":
		return &Error{Reason: "is a hard link to the directory itself"}
	}
	above, _ := splitName(target)
	err := t.existing(above, target)
	var info fs.FileInfo
	if err == nil {
		info, err = t.root.Lstat(target)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &Error{Reason: fmt.Sprintf("is a hard link to %q, which no earlier entry has created", infer.Cut(target, mostShown))}
	case err != nil:
		return asDiskError("look at the target of the hard link", err)
	case info.IsDir():
		return &Error{Reason: fmt.Sprintf("is a hard link to the directory %q", infer.Cut(target, mostShown))}
	case info.Mode()&fs.ModeSymlink != 0:
		// A second name for a relative link would lead elsewhere: it is a link of its own,
		// and checked where it lies.
		text, err := t.root.Readlink(target)
		if err != nil {
			return diskError("", "read the target of the hard link", err)
		}
		return t.symlink(name, text, mtime)
	}
	return t.makeEntry(name, "make the hard link", func(*os.Root, string) error { return t.root.Link(target, name) })
}

// checkUpward checks the links that have ".." after a name, when all entries exist.
func (t *tree) checkUpward(ctx context.Context) error {
	for _, name := range t.upward {
		if ctx.Err() != nil { // many links take long
			return context.Cause(ctx)
		}
		target, err := t.root.Readlink(name)
		if errors.Is(err, unix.EINVAL) {
			continue // a later entry of the same name is no link
		}
		if err != nil {
			return diskError(name, "read the symbolic link", err)
		}
		above, _ := splitName(name)
		if t.leaves(above, target) {
			return &Error{Entry: name, Reason: outwardError(target).Error()}
		}
	}
	return nil
}

// leaves reports whether a link in a directory leads out of the tree, by following it like the
// kernel. A missing component counts as a directory.
//
// bound: maxTarget, for each of 40 links
func (t *tree) leaves(directory, target string) bool {
	var at []string
	if directory != "" {
		at = strings.Split(directory, "/")
	}
	todo := strings.Split(target, "/")
	for links := 0; len(todo) > 0; {
		component := todo[0]
		todo = todo[1:]
		switch component {
		case "", ".":
			continue
		case "..":
			if len(at) == 0 {
				return true
			}
			at = at[:len(at)-1]
			continue
		}
		at = append(at, component)
		text, err := t.root.Readlink(path.Join(at...))
		if err != nil {
			continue
		}
		at = at[:len(at)-1]
		if links++; links > 40 {
			return false // Linux gives up as well
		}
		if strings.HasPrefix(text, "/") {
			return true
		}
		todo = slices.Concat(strings.Split(text, "/"), todo)
	}
	return false
}
