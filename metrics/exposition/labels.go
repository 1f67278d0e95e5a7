package exposition

import "strings"

var escapeValue = strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)

// Labels returns names and values as they stand between the braces.
func Labels(pairs ...[2]string) string {
	var b []byte
	for i, l := range pairs {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, l[0]...)
		b = append(b, `="`...)
		b = append(b, escapeValue.Replace(l[1])...)
		b = append(b, '"')
	}
	return string(b)
}

// Last returns the label of a bucket or a quantile, which has a number and stands behind the others.
func Last(name string, value float64) string {
	return string(append(AppendNumber(append([]byte(name), `="`...), value), '"'))
}
