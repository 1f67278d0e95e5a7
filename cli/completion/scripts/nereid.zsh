#compdef nereid
# Completion of nereid for zsh: source <(nereid completion zsh), behind compinit
_nereid() {
	local line word
	local -a lines found
	lines=("${(@f)$("${words[1]}" completion candidates -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	for line in "${(@)lines[2,-1]}"; do
		word=${line%%$'\t'*}
		found+=("${word//:/\\:}:${line#*$'\t'}")
	done
	(( $#found )) && _describe nereid found
	case $lines[1] in
	files)
		compset -P '--*='
		_files
		;;
	directories)
		compset -P '--*='
		_files -/
		;;
	esac
}
# As a file of fpath it is called at once; sourced, it is bound.
if [[ $funcstack[1] == _nereid ]]; then
	_nereid "$@"
else
	compdef _nereid nereid
fi
