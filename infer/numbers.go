package infer

import "strconv"

// Stol parses the decimal number at the beginning of text, like the C++ function that Triton uses.
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
		return 0, Errorf(InvalidArg, "stol") // out of range; Triton has the same text
	}
	return n, nil
}
