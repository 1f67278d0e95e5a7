package infer

import "strconv"

// Stol reads the decimal number that text begins with, as C's function of that
// name does, which Triton uses.
func Stol(text string) (int64, error) {
	i := 0
	for i < len(text) && (text[i] == ' ' || text[i] >= '\t' && text[i] <= '\r') {
		i++
	}
	begin := i
	if i < len(text) && (text[i] == '+' || text[i] == '-') {
		i++
	}
	digits := i
	for i < len(text) && text[i] >= '0' && text[i] <= '9' {
		i++
	}
	if i == digits {
		return 0, Errorf(InvalidArg, "stol")
	}
	n, err := strconv.ParseInt(text[begin:i], 10, 64)
	if err != nil {
		return 0, Errorf(InvalidArg, "stol") // out of range; Triton says no more
	}
	return n, nil
}
