package internal

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// maxLinks is the largest number of links in one paragraph or list item. Tables are exempt.
const maxLinks = 3

var (
	fencedBlock   = regexp.MustCompile("(?ms)^\\s*```.*?^\\s*```$")
	listItem      = regexp.MustCompile(`(?m)^\s*(?:[-*]|\d+\.) `)
	tableRow      = regexp.MustCompile(`(?m)^\|.*$`)
	markdownLink  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingLine   = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAnAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestLinksOfPages finds paragraphs with more than three links, and links to a file or a heading
// that does not exist.
func TestLinksOfPages(t *testing.T) {
	pages := 0
	walk(t, func(page string, content []byte) {
		if path.Ext(page) != ".md" {
			return
		}
		pages++
		text := fencedBlock.ReplaceAllString(string(content), "")
		for _, paragraph := range paragraphs(text) {
			if n := len(markdownLink.FindAllString(paragraph, -1)); n > maxLinks {
				t.Errorf("%s: got %d links in a paragraph, want at most %d:\n%s", page, n, maxLinks, paragraph)
			}
		}
		for _, link := range markdownLink.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(link[1], "://") && !leadsSomewhere(t, page, link[1]) {
				t.Errorf("%s links to %s, which does not exist", page, link[1])
			}
		}
	})
	if pages < 30 {
		t.Errorf("got %d pages, want at least 30", pages)
	}
}

// paragraphs returns the paragraphs and list items of a page.
func paragraphs(text string) []string {
	text = tableRow.ReplaceAllString(text, "")
	return strings.Split(listItem.ReplaceAllString(text, "\n\n"), "\n\n")
}

// leadsSomewhere reports whether a link's file and heading exist.
func leadsSomewhere(t *testing.T, page, link string) bool {
	t.Helper()
	file, anchor, _ := strings.Cut(link, "#")
	target := page
	if file != "" {
		target = path.Join(path.Dir(page), file)
	}
	if !exists(target) || anchor == "" {
		return exists(target)
	}
	for _, heading := range headingLine.FindAllStringSubmatch(read(t, target), -1) {
		if anchorOf(heading[1]) == anchor {
			return true
		}
	}
	return false
}

// anchorOf returns the anchor that GitHub gives a heading.
func anchorOf(heading string) string {
	return strings.ReplaceAll(notInAnAnchor.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}
