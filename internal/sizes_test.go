package internal

import (
	"path"
	"regexp"
	"testing"
)

// mostFiles is how many files a package has, tests aside, unless its doc.go gives the
// reason: "more than 15 files because …".
const mostFiles = 15

var sizeReason = regexp.MustCompile(`more than (?:15|fifteen)\sfiles\sbecause\s`)

func TestPackagesAreSmall(t *testing.T) {
	files, reasons := map[string]int{}, map[string]bool{}
	for _, file := range goFiles(t) {
		if file.test || file.generated {
			continue
		}
		folder := path.Dir(file.path)
		files[folder]++
		if doc := file.syntax.Doc; doc != nil && sizeReason.MatchString(doc.Text()) {
			reasons[folder] = true
		}
	}
	for folder, n := range files {
		switch {
		case n > mostFiles && !reasons[folder]:
			t.Errorf("%s has %d files, at most %d are wanted: divide it, or say in its doc.go that it has more than 15 files because …", folder, n, mostFiles)
		case n <= mostFiles && reasons[folder]:
			t.Errorf("%s has %d files: its doc.go need not say why there are so many", folder, n)
		}
	}
}
