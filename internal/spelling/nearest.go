// Package spelling suggests the known word for a misspelt one, such as a flag, a field of a
// configuration, a backend or a command.
package spelling

import "strings"

// maxWord is the length of the longest word that is compared, in bytes.
const maxWord = 100

// Nearest returns the most similar word in known, the first of equals, or "" if none is similar.
// Case, '-' and '_' make little difference.
func Nearest(word string, known []string) string {
	if word == "" || len(word) > maxWord {
		return ""
	}
	plain := fold(word)
	// At most one mistake in three letters: beyond that, words are similar by chance.
	best, least := "", max(1, len(plain)/3)+1
	for _, k := range known {
		if len(k) > maxWord || k == word { // the word itself is wrong here
			continue
		}
		if d := Distance(plain, fold(k)); d < least && d < len(k) {
			best, least = k, d
		}
	}
	return best
}

var folder = strings.NewReplacer("-", "", "_", "")

func fold(word string) string { return folder.Replace(strings.ToLower(word)) } // bound: maxWord

// Distance counts the letters to insert, remove, replace or swap with their neighbour to turn a
// into b.
//
// bound: b, which is a known word
func Distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
