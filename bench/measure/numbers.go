package measure

import (
	"fmt"
	"strconv"
	"strings"
)

// Numbers is a flag of positive numbers, separated by commas.
type Numbers []int

// String implements flag.Value.
func (n *Numbers) String() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(*n), " ", ","), "[]")
}

// Set implements flag.Value.
func (n *Numbers) Set(text string) error {
	*n = nil
	for field := range strings.SplitSeq(text, ",") {
		number, err := strconv.Atoi(field)
		if err != nil || number <= 0 {
			return fmt.Errorf("%q is not a positive number", field)
		}
		*n = append(*n, number)
	}
	return nil
}
