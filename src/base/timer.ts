/** The longest delay that a timer of Node takes: 24.8 days, in milliseconds. A longer one would fire at once. */
export const maxTimerMs = 2 ** 31 - 1
