package top

import (
	"encoding/json"
	"fmt"
	"time"
)

const (
	// askLimit limits a request to one endpoint.
	askLimit = 3 * time.Second
	// controlLimit limits a load, which may take long.
	controlLimit = time.Hour

	// The elements of all arrays in a reply are limited, since two bytes of text can take 264 of
	// memory. 10,000 models have 1.1 million in the status, which counts latencies, and fewer
	// elsewhere.
	maxElements       = 500_000
	maxStatusElements = 2_000_000
)

// decode parses JSON with a limited number of elements.
func decode(text []byte, into any, most int) error {
	if n := elements(text); n > most {
		return fmt.Errorf("the reply has %d elements of arrays, at most %d are read", n, most)
	}
	return json.Unmarshal(text, into)
}

// elements counts the elements of all arrays of a JSON text. An empty array counts as one.
func elements(text []byte) (n int) {
	inArray := make([]bool, 0, 64) // by depth
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '[', '{':
			inArray = append(inArray, text[i] == '[')
			if text[i] == '[' {
				n++
			}
		case ']', '}':
			inArray = inArray[:max(0, len(inArray)-1)]
		case ',':
			if len(inArray) > 0 && inArray[len(inArray)-1] {
				n++
			}
		}
	}
	return n
}
