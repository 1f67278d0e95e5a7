package measure

import (
	"path/filepath"
	"strconv"
	"strings"
)

// NewestPython returns the newest Python in .venvs, which "make venvs" creates, or "".
func NewestPython() string {
	found, newest := "", -1
	paths, _ := filepath.Glob(".venvs/3.*/bin/python") // the pattern is valid
	for _, path := range paths {
		version := filepath.Base(filepath.Dir(filepath.Dir(path)))
		minor, _, _ := strings.Cut(strings.TrimPrefix(version, "3."), "-")
		if n, err := strconv.Atoi(minor); err == nil && n > newest {
			found, newest = path, n
		}
	}
	return found
}
