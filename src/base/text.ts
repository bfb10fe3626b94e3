/** Texts from strangers. */

const unseen =
  // oxlint-disable-next-line no-control-regex, no-misleading-character-class -- these are what is taken out
  /[\u0000-\u0008\u000B\u000C\u000E-\u001F\u007F-\u009F\u00AD\u061C\u180E\u200B-\u200F\u202A-\u202E\u2060-\u2064\u2066-\u206F\uFE00-\uFE0D\uFEFF\uFFF9-\uFFFB\u{E0000}-\u{E01EF}]/gu

/**
 * The text without what people do not see and machines obey: control characters but for line breaks and tabs, zero-width
 * and direction marks, the tag characters, and variation selectors but for the two that emoji need.
 */
export function stripControls(text: string): string {
  return text.replace(unseen, '')
}
